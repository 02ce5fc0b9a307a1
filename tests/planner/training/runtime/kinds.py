"""Models with tiny configurations, in float64, as `planner run --model` takes them."""

from typing import Any

import torch
from torch import nn

WIDTH, WORDS, LENGTH = 16, 31, 6


class Logits(nn.Module):
    """The first output of a model of transformers, which is all that a pipeline needs."""

    def __init__(self, model: nn.Module, output: str = "logits") -> None:
        super().__init__()
        self.inner, self.output = model, output

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        return getattr(self.inner(**inputs), self.output)


def _made(name: str, config: str, **numbers: Any) -> nn.Module:
    import transformers

    settings = getattr(transformers, config)(**numbers, attn_implementation="eager")
    return Logits(getattr(transformers, name)(settings)).double()


def _words() -> torch.Tensor:
    return torch.randint(1, WORDS, (2, LENGTH))


def gpt() -> Any:
    numbers = {"n_embd": WIDTH, "n_layer": 3, "n_head": 2, "vocab_size": WORDS, "n_positions": 8, "use_cache": False}
    numbers |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    return _made("GPT2LMHeadModel", "GPT2Config", **numbers), {"input_ids": _words()}


_LAYERS = {"hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}


def llama() -> Any:
    numbers = _LAYERS | {"num_key_value_heads": 1, "vocab_size": WORDS, "use_cache": False}
    return _made("LlamaForCausalLM", "LlamaConfig", **numbers), {"input_ids": _words()}


def grouped() -> Any:
    """A Llama with two keys and values for four heads, and a vocabulary of an even number of words."""
    numbers = _LAYERS | {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": WORDS + 1}
    return _made("LlamaForCausalLM", "LlamaConfig", **numbers, use_cache=False), {"input_ids": _words()}


def bert() -> Any:
    numbers = _LAYERS | {
        "vocab_size": WORDS,
        "max_position_embeddings": 8,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]])
    return _made("BertForMaskedLM", "BertConfig", **numbers), {"input_ids": _words(), "attention_mask": mask}


def vit() -> Any:
    numbers = _LAYERS | {"image_size": 8, "patch_size": 4, "num_labels": 3}
    model = _made("ViTForImageClassification", "ViTConfig", **numbers)
    return model, {"pixel_values": torch.randn(2, 3, 8, 8, dtype=torch.float64)}


def t5() -> Any:  # its three embeddings and its head are tied
    numbers = {"d_model": WIDTH, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 2, "vocab_size": WORDS}
    numbers |= {"decoder_start_token_id": 0, "pad_token_id": 0}
    model = _made("T5ForConditionalGeneration", "T5Config", **numbers, dropout_rate=0.0, use_cache=False)
    return model, {"input_ids": _words(), "decoder_input_ids": _words()}


class Losses(nn.Module):
    """The loss of a model of transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = model

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.inner(**inputs).loss}


def t5_loss() -> Any:
    """The decoder's inputs are the labels, shifted by writing into a slice."""
    model, inputs = t5()
    return Losses(model.inner), {"input_ids": inputs["input_ids"], "labels": inputs["decoder_input_ids"]}


class Perceptron(nn.Module):
    """A layer around which its input goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x))


def _branch(layers: int) -> nn.Module:
    return nn.Sequential(*(Perceptron() for _ in range(layers)))


class Modal(nn.Module):
    """Words, pictures and sounds, each through a branch of its own, joined by a trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.picture = nn.Embedding(WORDS, WIDTH), nn.Conv2d(3, WIDTH, 2, 2)
        self.sound = nn.Linear(4, WIDTH)
        self.words, self.pictures, self.sounds, self.trunk = _branch(2), _branch(3), _branch(1), _branch(2)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, words: torch.Tensor, pictures: torch.Tensor, sounds: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = [
            self.words(self.word(words)),
            self.pictures(self.picture(pictures).flatten(2).transpose(1, 2)),
            self.sounds(self.sound(sounds)),
        ]
        joined = self.trunk(torch.cat(parts, 1))
        return {"loss": self.head(joined).square().mean(), "joined": joined}


def modal() -> Any:
    inputs = {"words": _words(), "pictures": torch.randn(2, 3, 4, 4).double(), "sounds": torch.randn(2, 3, 4).double()}
    return Modal().double(), inputs


class Experts(nn.Module):
    """A router that chooses two of four perceptrons for each word, and mixes what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2)
        shares = torch.zeros(*x.shape[:-1], 4, dtype=x.dtype, device=x.device).scatter(-1, chosen, weights)
        made = torch.stack([torch.tanh(expert(x)) for expert in self.experts], -1)
        return x + (made * shares.unsqueeze(-2)).sum(-1)


class Mixture(nn.Module):
    """An embedding, three layers of experts, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Experts() for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def experts() -> Any:
    return Mixture().double(), (_words(),)


class Stacked(nn.Module):
    """Two perceptrons at once, each with matrices of its own in one parameter of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Parameter(torch.randn(2, WIDTH, 24))
        self.narrow = nn.Parameter(torch.randn(2, 24, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(x @ self.wide) @ self.narrow


def stacked() -> Any:
    return nn.Sequential(*(Stacked() for _ in range(2))).double(), (torch.randn(2, LENGTH, WIDTH).double(),)


class Gated(nn.Module):
    """A perceptron whose gate and values are slices of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.narrow = nn.Linear(WIDTH, 48), nn.Linear(24, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.both(x)
        return x + self.narrow(torch.sigmoid(made[..., :24]) * made[..., 24:])


def gated() -> Any:
    return nn.Sequential(*(Gated() for _ in range(3))).double(), (torch.randn(2, LENGTH, WIDTH).double(),)


class Interaction(nn.Module):
    """A recommendation model (DLRM): tables and a perceptron, products of what they give, a perceptron on top."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(WORDS, WIDTH, mode="sum") for _ in range(3))
        self.bottom = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, WIDTH), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(WIDTH + 6, 24), nn.ReLU(), nn.Linear(24, 1))
        self.register_buffer("pairs", torch.triu_indices(4, 4, 1), persistent=False)

    def forward(self, numbers: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        dense = self.bottom(numbers)
        looked_up = [table(each) for table, each in zip(self.tables, features.unbind(1), strict=True)]
        all_of_them = torch.stack([dense, *looked_up], 1)
        products = all_of_them @ all_of_them.transpose(1, 2)
        return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1))


def dlrm() -> Any:
    features = torch.randint(WORDS, (4, 3, 2))  # of each of three kinds two
    return Interaction().double(), {"numbers": torch.randn(4, 5, dtype=torch.float64), "features": features}


class Hinted(nn.Module):
    """Perceptrons that get, besides, a frozen embedding and whole numbers made of it: tensors without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.hints = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(Perceptron() for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x, hint = self.words(words), self.hints(words)
        places = hint.argmax(-1, keepdim=True)
        for layer in self.layers:
            x = layer(x) * hint + x.gather(-1, places)
        return self.head(x)


def hinted() -> Any:
    return Hinted().double(), (_words(),)
