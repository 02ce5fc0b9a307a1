"""Small PyTorch models for the tests of what is captured; import it after looking for torch."""

from typing import Any

import torch
from torch import nn

VOCABULARY, WIDTH, HEADS, LENGTH = 50, 16, 4, 8


class Block(nn.Module):
    """A transformer block that attends with a mask it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Any, mask: Any) -> Any:
        b, s, _ = x.shape
        q, k, v = (each.view(b, s, HEADS, -1).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, dim=-1))
        a = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, WIDTH))
        return x + self.mlp(x)


class Language(nn.Module):
    """Embeddings, blocks, and a head that may be tied to the embedding; the mask is made once, for all blocks."""

    def __init__(self, blocks: int = 2, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: Any) -> Any:
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


class Layers(nn.Module):
    """Blocks one after another."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def language(device: str = "meta", batch: int = 1, **options: Any) -> tuple[nn.Module, tuple[Any, ...]]:
    """A language model and its inputs."""
    with torch.device(device):
        return Language(**options), (torch.ones(batch, LENGTH, dtype=torch.long),)


def kept_by(model: nn.Module, x: Any, besides: Any = ()) -> float:
    """Bytes of storages that PyTorch keeps for a backward pass, and of the tensors in ``besides`` after it."""
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers(), x)}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = model(x)
    assert result.requires_grad
    list(map(keep, besides))
    return float(sum(storage.nbytes() for storage in kept.values()))
