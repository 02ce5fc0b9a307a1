"""Models by name, as numbers: what the configurations that were published with them say, without weights.

``model_type`` and the keys are those of transformers; what is not named is the default of the model type there.
"""

from typing import Any


def _llama(
    hidden: int, inner: int, layers: int, heads: int, kv: int, vocabulary: int, positions: int
) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
    }


def _qwen(kind: str, architecture: str, llama: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**llama, "model_type": kind, "architectures": [architecture], **more}


def _gpt(hidden: int, layers: int, heads: int, positions: int = 1024) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": positions,
    }


def _encoder(kind: str, architecture: str, hidden: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind,
        "architectures": [architecture],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        **more,
    }


def _t5(hidden: int, inner: int, layers: int, heads: int, width: int = 64) -> dict[str, Any]:
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": hidden,
        "d_ff": inner,
        "d_kv": width,
        "num_layers": layers,
        "num_heads": heads,
    }


def _whisper(hidden: int, layers: int, heads: int, mels: int = 80, vocabulary: int = 51865) -> dict[str, Any]:
    return {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "d_model": hidden,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 4 * hidden,
        "decoder_ffn_dim": 4 * hidden,
        "num_mel_bins": mels,
        "vocab_size": vocabulary,
    }


def _swin(width: int, depths: list[int], heads: list[int]) -> dict[str, Any]:
    return {
        "model_type": "swin",
        "architectures": ["SwinForImageClassification"],
        "embed_dim": width,
        "depths": depths,
        "num_heads": heads,
    }


def _mixtral(hidden: int, inner: int, layers: int, heads: int, vocabulary: int) -> dict[str, Any]:
    sizes = _llama(hidden, inner, layers, heads, 8, vocabulary, 32768)
    return {
        **sizes,
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }


_MASKED, _IMAGES = "BertForMaskedLM", "ViTForImageClassification"
_QWEN3_MOE = _qwen(
    "qwen3_moe",
    "Qwen3MoeForCausalLM",
    _llama(2048, 6144, 48, 32, 4, 151936, 40960),
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
)
_GPT_OSS = _qwen(
    "gpt_oss",
    "GptOssForCausalLM",
    _llama(2880, 2880, 24, 64, 8, 201088, 131072),
    head_dim=64,
    num_local_experts=32,
    num_experts_per_tok=4,
)
_CLIP_L = {
    "model_type": "clip",
    "architectures": ["CLIPModel"],
    "projection_dim": 768,
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12},
    "vision_config": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
}

CATALOGUE: dict[str, dict[str, Any]] = {
    "gpt2": _gpt(768, 12, 12),
    "gpt2-medium": _gpt(1024, 24, 16),
    "gpt2-large": _gpt(1280, 36, 20),
    "gpt2-xl": _gpt(1600, 48, 25),
    "gpt3-175b": _gpt(12288, 96, 96, 2048),
    "bert-base": _encoder("bert", _MASKED, 768, 12, 12),
    "bert-large": _encoder("bert", _MASKED, 1024, 24, 16),
    "llama-7b": _llama(4096, 11008, 32, 32, 32, 32000, 4096),
    "llama-13b": _llama(5120, 13824, 40, 40, 40, 32000, 4096),
    "llama-2-70b": _llama(8192, 28672, 80, 64, 8, 32000, 4096),
    "llama-3-8b": _llama(4096, 14336, 32, 32, 8, 128256, 8192),
    "llama-3-70b": _llama(8192, 28672, 80, 64, 8, 128256, 8192),
    "llama-3-405b": _llama(16384, 53248, 126, 128, 8, 128256, 131072),
    "mixtral-8x7b": _mixtral(4096, 14336, 32, 32, 32000),
    "mixtral-8x22b": _mixtral(6144, 16384, 56, 48, 32768),
    "qwen2.5-7b": _qwen("qwen2", "Qwen2ForCausalLM", _llama(3584, 18944, 28, 28, 4, 152064, 32768)),
    "qwen2.5-72b": _qwen("qwen2", "Qwen2ForCausalLM", _llama(8192, 29568, 80, 64, 8, 152064, 32768)),
    "qwen3-8b": _qwen("qwen3", "Qwen3ForCausalLM", _llama(4096, 12288, 36, 32, 8, 151936, 40960), head_dim=128),
    "qwen3-30b-a3b": _QWEN3_MOE,
    "gpt-oss-20b": _GPT_OSS,
    "gpt-oss-120b": {**_GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128},
    "t5-large": _t5(1024, 4096, 24, 16),
    "t5-3b": _t5(1024, 16384, 24, 32, 128),
    "vit-b": _encoder("vit", _IMAGES, 768, 12, 12),
    "vit-l": _encoder("vit", _IMAGES, 1024, 24, 16),
    "vit-h": _encoder("vit", _IMAGES, 1280, 32, 16, patch_size=14),
    "resnet50": {"model_type": "resnet", "architectures": ["ResNetForImageClassification"], "num_labels": 1000},
    "swin-t": _swin(96, [2, 2, 6, 2], [3, 6, 12, 24]),
    "swin-b": _swin(128, [2, 2, 18, 2], [4, 8, 16, 32]),
    "clip-vit-b-32": {"model_type": "clip", "architectures": ["CLIPModel"]},
    "clip-vit-l-14": _CLIP_L,
    "whisper-tiny": _whisper(384, 4, 6),
    "whisper-large-v3": _whisper(1280, 32, 20, 128, 51866),
}
