"""Packed sequences: document ids, offsets, masks within documents, padding."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import and_masks

OFFSETS = torch.tensor([0, 5, 6, 17, 24])


def causal_mask(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def ids_of(offsets: Tensor) -> Tensor:
    counts = offsets[1:] - offsets[:-1]
    return torch.repeat_interleave(torch.arange(len(counts), device=offsets.device), counts)


document_id = ids_of(OFFSETS)


def same_document(b, h, q_idx, kv_idx):
    return document_id[q_idx] == document_id[kv_idx]


packed_causal = and_masks(causal_mask, same_document)


def make_doc_mask_mod(inner_mask_mod, offsets: Tensor):
    """Runs a mask on positions within each document."""
    document_id = ids_of(offsets)

    def doc_mask_mod(b, h, q_idx, kv_idx):
        same_doc = document_id[q_idx] == document_id[kv_idx]
        q_logical = q_idx - offsets[document_id[q_idx]]
        kv_logical = kv_idx - offsets[document_id[kv_idx]]
        return same_doc & inner_mask_mod(b, h, q_logical, kv_logical)

    return doc_mask_mod


def batched_documents(doc):
    def mask(b, h, q_idx, kv_idx):
        return (doc[b, q_idx] == doc[b][kv_idx]) & (q_idx >= kv_idx)

    return mask


def padding(seq_lens: Tensor, q_lens: Tensor):
    def mask(b, h, q_idx, kv_idx):
        return torch.logical_and(kv_idx < seq_lens[b], q_idx < q_lens[b])

    return mask


def key_padding(attention_mask: Tensor):
    def mask(b, h, q_idx, kv_idx):
        return attention_mask[b, kv_idx] & (q_idx >= kv_idx)

    return mask


def shared_prefix(offsets: Tensor, prefix_of: Tensor, start: Tensor):
    """Documents that read another one, given once, before their own tokens."""
    document_id = ids_of(offsets)

    def mask(b, h, q_idx, kv_idx):
        doc = document_id[q_idx]
        own = (start[doc] <= kv_idx) & (kv_idx <= q_idx)
        prefix = prefix_of[doc]
        shared = (prefix != doc) & (offsets[prefix] <= kv_idx) & (kv_idx < offsets[prefix + 1])
        return own | shared

    return mask


def offset_decoding(mask_mod, offset):
    """A mask for one step of decoding: the query stands at `offset`."""

    def shifted(b, h, q_idx, kv_idx):
        return mask_mod(b, h, q_idx + offset, kv_idx)

    return shifted
