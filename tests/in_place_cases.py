"""The mods of four packages: how each is imported where it lies, and how Python makes the same function."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

BATCH, HEADS, LENGTH = 2, 4, 24


@dataclass(frozen=True)
class InPlace:
    """`target` stands behind the file for `attncc import-flex`. `call` gives the same function in Python, with `inputs`
    (Python expressions by their names in the `.attn` text) and `more` values; functions of the files in `also` are at
    hand. `inner` are functions within others, which Python gets without those around them.
    """

    file: str
    target: str
    call: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    square: bool = False  # tensors fit only q_len = kv_len = LENGTH

    @property
    def package(self) -> str:
        return self.file.partition("/")[0]

    @property
    def name(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.target}"


@dataclass(frozen=True)
class Refused:
    """A mod that has no text, the code of the error, and why."""

    file: str
    target: str
    code: str
    why: str


_CAUSAL = ("attn_gym/masks/causal.py",)
_DOCS = {"offsets": "OFFSETS", "document_id": "DOCUMENT"}

_MASKS = [
    InPlace("batchify.py", "batchify_mask_mod(causal_mask, 5)", also=_CAUSAL),
    InPlace("batchify.py", "batchify_mask_mod(noop_mask, batchify_size)", "batchify_mask_mod(noop_mask, batchify_size)",
            {"batchify_size": "7"}),
    InPlace("block_diffusion.py", "generate_block_diffusion_mask(12, 4)"),
    InPlace("causal.py", "causal_mask"),
    InPlace("dilated_sliding_window.py", "generate_dilated_sliding_window(4, 2)"),
    InPlace("dilated_sliding_window.py", "generate_dilated_sliding_window",
            "generate_dilated_sliding_window(window_size, dilation)", {"window_size": "9", "dilation": "3"}),
    InPlace("document_mask.py", "generate_doc_mask_mod(causal_mask)", "generate_doc_mask_mod(causal_mask, offsets)",
            _DOCS, also=_CAUSAL),
    InPlace("document_mask.py", "generate_packed_causal_doc_mask_mod", "generate_packed_causal_doc_mask_mod(offsets)",
            _DOCS, also=_CAUSAL, square=True),
    InPlace("flamingo.py", "generate_vision_cross_attention_mask_mod",
            "generate_vision_cross_attention_mask_mod(intervals, 4)",
            {"intervals": "torch.tensor([[0, 5], [2, 9], [3, 3], [8, 24], [0, 24], [20, 22]])",
             "image_boundaries": "torch.arange(LENGTH) // 4"}),
    InPlace("global_sliding_window.py", "generate_global_sliding_window(3)",
            "generate_global_sliding_window(3, is_global)", {"is_global": "bools(LENGTH)"}),
    InPlace("jetspec.py", "generate_jetspec_tree_causal_mask_mod(8)",
            "generate_jetspec_tree_causal_mask_mod(8, ancestor_matrix)",
            {"ancestor_matrix": "bools(LENGTH, LENGTH)", "num_tree_nodes": "LENGTH", "tree_stop": "8 + LENGTH"},
            square=True),
    InPlace("jetspec.py", "generate_jetspec_tree_causal_mask_mod(8, torch.empty(24, 24))",
            "generate_jetspec_tree_causal_mask_mod(8, ancestor_matrix)",
            {"ancestor_matrix": "bools(LENGTH, LENGTH)"}, square=True),
    InPlace("jetspec.py", "generate_jetspec_training_mask_mod(8, 4)"),
    InPlace("natten.py", "generate_natten(6, 4, 3, 3)"),
    InPlace("natten.py", "generate_natten", "generate_natten(canvas_w, canvas_h, kernel_w, kernel_h)",
            {"canvas_w": "4", "canvas_h": "6", "kernel_w": "3", "kernel_h": "5"}),
    InPlace("natten.py", "generate_tiled_natten(8, 6, 3, 3, 4, 2)"),
    InPlace("natten.py", "generate_morton_natten(8, 8, 3, 3)"),
    InPlace("prefix_lm.py", "generate_prefix_lm_mask(5)", also=_CAUSAL),
    InPlace("shared_prefix.py", "generate_shared_prefix_mask_mod",
            "generate_shared_prefix_mask_mod(offsets, prefix_document_id)",
            {**_DOCS, "prefix_document_id": "torch.tensor([0, 0, 2, 2])"}, square=True,
            also=(*_CAUSAL, "attn_gym/masks/document_mask.py")),
    InPlace("sliding_window.py", "generate_sliding_window(4)", also=_CAUSAL),
    InPlace("sta.py", "generate_sta_mask_mod_2d((4, 6), (2, 6), (2, 3), 2)"),
    InPlace("sta.py", "generate_sta_mask_mod_3d((2, 2, 4), (2, 2, 2), (1, 2, 2), 3)"),
    InPlace("svg.py", "generate_spatial_head_mask_mod(3, 4, 5, 2, False, 4)"),
    InPlace("svg.py", "generate_spatial_head_mask_mod(3, 4, 5, 2, attn_sink=True, round_width=4)"),
    InPlace("svg.py", "generate_temporal_head_mask_mod(3, 4, 5, 2)"),
    InPlace("vsa.py", "generate_vsa_mask_mod(torch.empty(2, 4, 6, 3), 4)", "generate_vsa_mask_mod(topk_indices, 4)",
            {"topk_indices": "ints(6, BATCH, HEADS, 6, 3)"}),
    InPlace("vsa.py", "generate_vsa_mask_mod(torch.empty(2, 4, 6, 3), 4, torch.empty(6))",
            "generate_vsa_mask_mod(topk_indices, 4, variable_block_sizes)",
            {"topk_indices": "ints(6, BATCH, HEADS, 6, 3)", "variable_block_sizes": "ints(5, 6)"}),
    InPlace("vsa.py", "generate_vsa_padding_mask_mod(tile_numel=4)",
            "generate_vsa_padding_mask_mod(variable_block_sizes, 4)", {"variable_block_sizes": "ints(5, 6)"}),
]  # fmt: skip

_SCORES = [
    InPlace("activation.py", "generate_activation_score_mod", "generate_activation_score_mod()"),
    InPlace("activation.py", "generate_activation_score_mod(torch.sigmoid, 0.5)"),
    InPlace("alibi.py", "generate_alibi_bias(4)"),
    InPlace("alibi.py", "main.causal_mask", "causal_mask", inner=("main.causal_mask",)),
    InPlace("graphormer.py", "generate_graphormer_spatial_bias",
            "generate_graphormer_spatial_bias(spatial_bias, distances)",
            {"spatial_bias": "floats(HEADS, 9)", "distances": "ints(9, BATCH, LENGTH, LENGTH)"}, square=True),
    InPlace("graphormer.py", "generate_graphormer_edge_bias(path_edge_types=torch.empty(2, 24, 24, 3))",
            "generate_graphormer_edge_bias(torch.stack([table, table_2, table_3], 1), path_edge_types, path_lengths)",
            {"path_lengths": "ints(4, BATCH, LENGTH, LENGTH)", "path_edge_types": "ints(5, BATCH, LENGTH, LENGTH, 3)",
             "table": "floats(HEADS, 5)", "table_2": "2 * floats(HEADS, 5)", "table_3": "floats(HEADS, 5) - 1"},
            square=True),
    InPlace("latent_attention.py",
            "generate_mla_rope_score_mod(torch.empty(2, 4, 24, 8), torch.empty(2, 1, 24, 8), 4, 0.5)",
            "generate_mla_rope_score_mod(query_rope, key_rope, 4, 0.5)",
            {"query_rope": "floats(BATCH, HEADS, LENGTH, 8)", "key_rope": "floats(BATCH, 1, LENGTH, 8)"}, square=True),
    InPlace("sandwich.py", "generate_sandwich_bias(4, 24)", "generate_sandwich_bias(4, 24, 16)",
            {"rel_bias": "((torch.arange(48.0) - 23).abs()[:, None] / 10000 ** (torch.arange(8.0) / 8)).cos().sum(-1)",
             "head_scale": "4 / (8.0 * torch.arange(1, 5))"}),
    InPlace("sandwich.py", "main.causal_mask", "causal_mask", inner=("main.causal_mask",)),
    InPlace("softcapping.py", "generate_tanh_softcap(20)"),
    InPlace("softcapping.py", "generate_tanh_softcap", "generate_tanh_softcap(soft_cap)", {"soft_cap": "3"}),
]  # fmt: skip

_TITAN = [
    InPlace("models/common/attention.py", "get_causal_mask_mod", "get_causal_mask_mod()"),
    InPlace("models/common/attention.py", "get_document_mask_mod", "get_document_mask_mod(POSITIONS)",
            {"doc_ids": "DOCUMENTS"}),
    InPlace("models/common/attention.py", "get_efficient_causal_mask_mod_for_packed_document(torch.empty(1, 24))",
            "get_efficient_causal_mask_mod_for_packed_document(POSITIONS[:1])",
            {"offsets": "torch.tensor([0, 7, 12] + [LENGTH] * 125)", "document_id": "DOCUMENTS[0]"},
            also=("torchtitan/tools/utils.py",), square=True),
    InPlace("models/common/attention.py", "get_efficient_causal_mask_mod_for_packed_document(torch.empty(2, 24))",
            "get_efficient_causal_mask_mod_for_packed_document(POSITIONS)",
            {"doc_end_by_token": "torch.tensor([[6] * 7 + [11] * 5 + [23] * 12, [15] * 16 + [23] * 8])"}),
    InPlace("models/common/attention.py", "get_fixed_block_mask_mod(5)"),
    InPlace("models/common/attention.py", "get_sliding_window_mask_mod(5)"),
    InPlace("models/common/attention.py", "and_masks(get_causal_mask_mod(), get_sliding_window_mask_mod(5))"),
    InPlace("models/common/vision_encoder.py", "get_vision_block_mask_mod", "get_vision_block_mask_mod(num_patches)",
            {"num_patches": "torch.tensor([7, 20])"}),
    InPlace("models/muse_glimmer/vision_encoder.py", "MuseGlimmerVisionEncoder._build_padded_masks.sparse_mask_mod",
            "sparse_mask_mod", {"num_patch": "torch.tensor([7, 20])", "win_id": "DOCUMENTS"},
            inner=("MuseGlimmerVisionEncoder._build_padded_masks.sparse_mask_mod",)),
]  # fmt: skip

_TUNE = [
    InPlace("modules/attention_utils.py", "packed_block_causal_mask.mask_mod", "mask_mod",
            {"document_ids": "DOCUMENTS"}, inner=("packed_block_causal_mask.mask_mod",)),
]  # fmt: skip

_UTILS = [
    InPlace("masking_utils.py", "and_masks(causal_mask_function, sliding_window_bidirectional_overlay(4))"),
    InPlace("masking_utils.py", "or_masks(causal_mask_function, sliding_window_bidirectional_overlay(4))"),
    InPlace("masking_utils.py", "causal_mask_function"),
    InPlace("masking_utils.py", "bidirectional_mask_function"),
    InPlace("masking_utils.py", "sliding_window_overlay(4)"),
    InPlace("masking_utils.py", "sliding_window_overlay", "sliding_window_overlay(sliding_window)",
            {"sliding_window": "3"}),
    InPlace("masking_utils.py", "sliding_window_causal_mask_function(4)"),
    InPlace("masking_utils.py", "chunked_overlay(5)", "chunked_overlay(5, left_padding)",
            {"left_padding": "torch.tensor([0, 3])"}),
    InPlace("masking_utils.py", "chunked_causal_mask_function(5)", "chunked_causal_mask_function(5, left_padding)",
            {"left_padding": "torch.tensor([0, 3])"}),
    InPlace("masking_utils.py", "blockwise_overlay", "blockwise_overlay(block_sequence_ids)",
            {"block_sequence_ids": "DOCUMENTS - 1"}),
    InPlace("masking_utils.py", "sliding_window_bidirectional_overlay(4)"),
    InPlace("masking_utils.py", "sliding_window_bidirectional_mask_function(4)"),
    InPlace("masking_utils.py", "padding_mask_function", "padding_mask_function(padding_mask)",
            {"padding_mask": "bools(BATCH, LENGTH)"}),
    InPlace("masking_utils.py", "packed_sequence_mask_function", "packed_sequence_mask_function(packed_sequence_mask)",
            {"packed_sequence_mask": "DOCUMENTS"}),
    InPlace("masking_utils.py", "remap_positions_for_packed_sequence(causal_mask_function)",
            "remap_positions_for_packed_sequence(causal_mask_function, position_ids)", {"position_ids": "POSITIONS"}),
    InPlace("masking_utils.py", "add_offsets_to_mask_function(causal_mask_function, 3, 1)"),
    InPlace("masking_utils.py", "add_offsets_to_mask_function(causal_mask_function)",
            "add_offsets_to_mask_function(causal_mask_function, q_offset_, kv_offset_)",
            {"q_offset_": "5", "kv_offset_": "2"}),
]  # fmt: skip

_MAKE, _FORWARD = "make_flex_block_causal_mask", "flex_attention_forward"
_TABLES = {"attention_mask_2d": "DOCUMENTS - 1", "document_ids": "DOCUMENTS"}

_FLEX = [
    InPlace("flex_attention.py", f"{_MAKE}()", "causal_mask_mod", _TABLES, inner=(f"{_MAKE}.causal_mask_mod",),
            square=True),
    InPlace("flex_attention.py", f"{_MAKE}.chunk_causal_mask_mod", "chunk_causal_mask_mod",
            {**_TABLES, "chunk_idxs": "torch.arange(LENGTH).expand(BATCH, LENGTH) // 5"},
            inner=(f"{_MAKE}.causal_mask_mod", f"{_MAKE}.chunk_causal_mask_mod"), square=True),
    InPlace("flex_attention.py", f"{_MAKE}.default_mask_mod", "default_mask_mod", _TABLES,
            inner=(f"{_MAKE}.default_mask_mod",)),
    InPlace("flex_attention.py", f"{_MAKE}(offsets=torch.empty(2)).mask_mod", "mask_mod",
            {**{name: f"torch.cat([{value}] * 2, 1)" for name, value in _TABLES.items()}, "q_offset_": "2",
             "kv_offset_": "1"},
            more={"mask_mod_maybe_combined": "causal_mask_mod", "q_offset": "q_offset_", "kv_offset": "kv_offset_"},
            inner=(f"{_MAKE}.causal_mask_mod", f"{_MAKE}.mask_mod")),
    InPlace("flex_attention.py", f"{_FORWARD}(softcap=3.0, attention_mask=None, position_bias=None).score_mod",
            "score_mod", more={"softcap": "3.0", "score_mask": "None", "position_bias": "None"},
            inner=(f"{_FORWARD}.score_mod",)),
    InPlace("flex_attention.py",
            f"{_FORWARD}(attention_mask=torch.empty(2, 1, 24, 24), position_bias=torch.empty(2, 4, 24, 24)).score_mod",
            "score_mod",
            {"score_mask": "floats(BATCH, 1, LENGTH, LENGTH)", "position_bias": "floats(BATCH, HEADS, LENGTH, LENGTH)"},
            more={"softcap": "None"}, inner=(f"{_FORWARD}.score_mod",), square=True),
]  # fmt: skip

_MODELS = [
    InPlace("doge/modeling_doge.py", f"{_FORWARD}(softcap=3.0, attention_mask=torch.empty(2, 4, 24, 24)).score_mod",
            "score_mod", {"causal_mask": "floats(BATCH, HEADS, LENGTH, LENGTH)"}, more={"softcap": "3.0"},
            inner=(f"{_FORWARD}.score_mod",), square=True),
    InPlace("gemma3/modeling_gemma3.py", "_bidirectional_window_overlay(4)"),
    InPlace("gemma4/modeling_gemma4.py", "sliding_window_mask_function((4, 3))"),
    InPlace("gemma4/modular_gemma4.py", "token_type_ids_mask_function",
            "token_type_ids_mask_function(image_group_ids, image_group_ids)",
            {"image_group_ids": "DOCUMENTS[:, :20] - 1", "seq_length": "20"}),
    InPlace("moonshine_streaming/modeling_moonshine_streaming.py", "sliding_window_mask_function((4, 3))"),
    InPlace("nemotron_asr_streaming/modeling_nemotron_asr_streaming.py", "chunked_limited_mask_function(8, 3)"),
    InPlace("nemotron_asr_streaming/modeling_nemotron_asr_streaming.py", "chunked_limited_mask_function(-1, 3)"),
    InPlace("pi0/modular_pi0.py", "blockwise_bidirectional_mask(torch.empty(3))",
            "blockwise_bidirectional_mask(block_boundaries)", {"block_boundaries": "torch.tensor([4, 9, 17])"}),
    InPlace("step3p7/modeling_step3p7.py", "_bidirectional_window_overlay(4)"),
    InPlace("t5gemma2/modeling_t5gemma2.py", "sliding_window_mask_function(5)"),
    InPlace("t5gemma2/modeling_t5gemma2.py", "sliding_window_mask_function(5, is_causal=False)"),
    InPlace("unlimited_ocr/modeling_unlimited_ocr.py",
            "create_reference_sliding_window_causal_mask.prefill_overlay", "prefill_overlay",
            {"kv_offset_": "2", "prefill_length": "9"}, more={"kv_offset": "kv_offset_"},
            inner=("create_reference_sliding_window_causal_mask.prefill_overlay",)),
]  # fmt: skip


def _below(folder: str, cases: list[InPlace]) -> list[InPlace]:
    return [replace(case, file=f"{folder}/{case.file}") for case in cases]


CASES = [
    *_below("attn_gym/masks", _MASKS),
    *_below("attn_gym/mods", _SCORES),
    *_below("torchtitan", _TITAN),
    *_below("torchtune", _TUNE),
    *_below("transformers", _UTILS),
    *_below("transformers/integrations", _FLEX),
    *_below("transformers/models", _MODELS),
]

REFUSED = [
    Refused(
        "torchtitan/experiments/graph_trainer/graph_pp/utils.py", "_graphable_split_block_mask.graphable_mask_mod",
        "A706", "it calls the mask_mod of a BlockMask that is given at run time",
    ),
    Refused(
        "attn_gym/mods/softcapping.py", "generate_tanh_softcap(20, approx=True)",
        "A706", "its tanh is an autograd.Function of an operator registered by name",
    ),
]  # fmt: skip
