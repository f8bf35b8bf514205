"""The functions in `cases/`, how each is imported, and how torch evaluates it: the same function, with these inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "cases"
BATCH, HEADS, LENGTH = 2, 4, 24


@dataclass(frozen=True)
class Case:
    """`target` is what the user asks for. `call` gives the same function in Python, where `target` leaves inputs open;
    `inputs` are Python expressions, one for each input of the variant. `loops`: torch can't vectorise it.
    """

    file: str
    target: str
    call: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    loops: bool = False
    square: bool = False  # tensors fit only q_len = kv_len = LENGTH


_TABLE = "torch.arange(BATCH * HEADS * 6 * 6).reshape(BATCH, HEADS, 6, 6)"

CASES = {
    "causal": Case("basic", "causal"),
    "causal_by_lambda": Case("basic", "causal_by_lambda"),
    "sliding_window": Case("basic", "sliding_window_causal"),
    "prefix_lm": Case("basic", "prefix_lm_causal", inputs={"prefix_length": "prefix_length"}),
    "block_mask": Case("basic", "block_mask", call="sliding_window_causal"),
    "window_open": Case("basic", "make_window", "make_window(window_size)", {"window_size": "5"}),
    "window_known": Case("basic", "make_window(window_size=3)"),
    "window_inner": Case(
        "basic", "make_window.window_mask", call="make_window(window_size)", inputs={"window_size": "2"}
    ),
    "dilated": Case(
        "basic", "generate_dilated_window", "generate_dilated_window(window, dilation)",
        {"window": "9", "dilation": "3"},
    ),
    "longformer": Case(
        "basic", "longformer", "longformer(is_global)", {"is_global": "torch.arange(LENGTH) % 7 == 3"}, square=True
    ),
    "chained": Case("basic", "chained", loops=True),
    "everything": Case("basic", "everything"),
    "packed": Case("documents", "packed_causal", inputs={"document_id": "document_id"}, square=True),
    "documents": Case(
        "documents", "make_doc_mask_mod(causal_mask)", "make_doc_mask_mod(causal_mask, offsets)",
        {"offsets": "OFFSETS", "document_id": "ids_of(OFFSETS)"}, square=True,
    ),
    "batched_documents": Case(
        "documents", "batched_documents", "batched_documents(doc)",
        {"doc": "torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) // 7"}, square=True,
    ),
    "padding": Case(
        "documents", "padding", "padding(seq_lens, q_lens)",
        {"seq_lens": "torch.tensor([5, 24])", "q_lens": "torch.tensor([0, 17])"},
    ),
    "key_padding": Case(
        "documents", "key_padding", "key_padding(attention_mask)",
        {"attention_mask": "torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) % 5 > 1"}, square=True,
    ),
    "shared_prefix": Case(
        "documents", "shared_prefix", "shared_prefix(offsets, prefix_of, start)",
        {"offsets": "OFFSETS", "prefix_of": "torch.tensor([0, 0, 0, 1])", "start": "OFFSETS[:-1]",
         "document_id": "ids_of(OFFSETS)"},
        square=True,
    ),
    "decoding": Case(
        "documents", "offset_decoding(causal_mask)", "offset_decoding(causal_mask, offset)",
        {"offset": "torch.tensor(5)"},
    ),
    "neighbourhood": Case("images", "generate_neighbourhood(6, 4, 3, 5)"),
    "neighbourhood_open": Case(
        "images", "generate_neighbourhood", "generate_neighbourhood(canvas_w, canvas_h, kernel_w, kernel_h)",
        {"canvas_w": "4", "canvas_h": "6", "kernel_w": "3", "kernel_h": "3"},
    ),
    "tiled": Case("images", "generate_tiled(8, 3, 3, 4, 1)"),
    "morton": Case("images", "morton_distance(3)"),
    "disc": Case("images", "round_neighbourhood(6, 2.5)"),
    "images": Case(
        "images", "attends_image", "attends_image(first, last)",
        {"first": "torch.tensor([0, 4, 4, 9, 9, 20])", "last": "torch.tensor([3, 4, 9, 12, 24, 21])"},
    ),
    "block_diffusion": Case("blocks", "block_diffusion_mask"),
    "block_sparse": Case(
        "blocks", "BlockSparse.mask_mod", "BlockSparse(block_map, block_size).mask_mod",
        {"block_map": f"{_TABLE} % 3 == 0", "block_size": "4"},
    ),
    "spatial": Case(
        "blocks", "video.spatial", "video(context_length, 5, width)[0]", {"context_length": "4", "width": "3"}
    ),
    "temporal": Case("blocks", "video(4, 5, 2, first_frame_sink=True).temporal", "video(4, 5, 2, True)[1]"),
    "tree": Case(
        "blocks", "tree", "tree(ancestors, prompt)",
        {"ancestors": "torch.arange(LENGTH * LENGTH).reshape(LENGTH, LENGTH) % 5 == 2", "prompt": "6"}, square=True,
    ),
    "batchify": Case("blocks", "batchify(causal, 5)"),
    "top_k": Case("blocks", "top_k_blocks", "top_k_blocks(top_k)", {"top_k": f"{_TABLE} % 7"}, loops=True),
    "top_k_written_out": Case("blocks", "top_k_written_out", "top_k_written_out(top_k)", {"top_k": f"{_TABLE} % 7"}),
    "alibi": Case("biases", "generate_alibi_bias", "generate_alibi_bias(H)", {"H": "4"}),
    "alibi_slopes": Case("biases", "alibi_slopes", inputs={"SLOPES": "SLOPES"}),
    "softcap": Case("biases", "generate_tanh_softcap(20)"),
    "softcap_open": Case("biases", "generate_tanh_softcap", "generate_tanh_softcap(soft_cap)", {"soft_cap": "3"}),
    "capped": Case("biases", "capped"),
    "relative_bias": Case("biases", "relative_bias", inputs={"bias_table": "bias_table.detach()"}),
    "causal_then_bias": Case("biases", "causal_then_bias"),
    "bucketed": Case(
        "biases", "bucketed", "bucketed(table)", {"table": "torch.linspace(-2, 2, 8 * HEADS).reshape(8, HEADS)"}
    ),
    "graph": Case(
        "biases", "graph_edges", "graph_edges(path_length, edge_type, edge_bias)",
        {"path_length": "torch.arange(BATCH * LENGTH**2).reshape(BATCH, LENGTH, LENGTH) % 4",
         "edge_type": "torch.arange(BATCH * LENGTH**2 * 3).reshape(BATCH, LENGTH, LENGTH, 3) % 5",
         "edge_bias": "torch.linspace(-1, 1, HEADS * 3 * 5).reshape(HEADS, 3, 5)"},
        square=True,
    ),
    "temperature": Case("biases", "temperature"),
    "additive": Case(
        "biases", "additive", "additive(attn_bias)",
        {"attn_bias": "torch.linspace(-3, 3, BATCH * HEADS * LENGTH**2).reshape(BATCH, HEADS, LENGTH, LENGTH)"},
        square=True,
    ),
    "penalised": Case("biases", "penalised"),
    "filled": Case("biases", "filled"),
    "selected_tiles": Case(
        "axes", "selected_tiles(torch.empty(2, 4, 6, 3), 4)", "selected_tiles(tiles, 4)",
        {"tiles": "torch.arange(BATCH * HEADS * 6 * 3).reshape(BATCH, HEADS, 6, 3) * 5 % 6"},
    ),
    "shared_tags": Case(
        "axes", "shared_tags(torch.empty(2, 24, 4, dtype=torch.bool))", "shared_tags(tags)",
        {"tags": "torch.arange(BATCH * LENGTH * 4).reshape(BATCH, LENGTH, 4) % 7 > 2"},
    ),
    "steps": Case("axes", "steps", inputs={"STEPS": "STEPS"}),
    "extremes": Case("axes", "extremes"),
    "products": Case(
        "axes", "products(torch.empty(2, 24, 5), rows=torch.empty(4, 3))", "products(vectors, rows)",
        {"vectors": "torch.linspace(-1, 2, BATCH * LENGTH * 5).reshape(BATCH, LENGTH, 5).sin()",
         "rows": "torch.linspace(-2, 1, HEADS * 3).reshape(HEADS, 3).cos()"},
    ),
    "parts": Case(
        "axes", "parts(torch.empty(4, 8))", "parts(table)",
        {"table": "torch.linspace(-2, 1, HEADS * 8).reshape(HEADS, 8).cos()"},
    ),
    "by_name": Case("objects", "by_name('local')"),
    "window": Case("objects", "Window(4).mask"),
    "window_both_ways": Case("objects", "Window(4, causal=False).mask"),
    "wide_window": Case("objects", "Wide(3).mask"),
    "any_window": Case("objects", "Window.mask", "Window(size).mask", {"size": "5", "causal": "True"}),
    "bias_module": Case("objects", "Bias(4, 7).forward", inputs={"table": "Bias(4, 7).table.detach()"}),
    "maybe": Case("objects", "maybe", "maybe(limits)", {"limits": "torch.tensor([5, 17])"}),
    "one_sequence": Case(
        "objects", "by_batch(torch.empty(1, 24))", "by_batch(torch.arange(LENGTH)[None] // 7 * 7)",
        {"first": "torch.arange(LENGTH) // 7 * 7"}, square=True,
    ),
    "sequences": Case(
        "objects", "by_batch(torch.empty(2, 24))", "by_batch(LENGTH - ends)",
        {"ends": "LENGTH - torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) // 5"}, square=True,
    ),
    "combinators": Case("style", "combined"),
    "partial_backwards": Case("style", "backwards"),
    "by_reduce": Case("style", "by_reduce"),
    "factory": Case("style", "factory", "factory()"),
    "factory_limited": Case("style", "factory('full', limit=3)", loops=True),
    "heads": Case("style", "heads", "heads(num_global, stride)", {"num_global": "2", "stride": "4"}),
    "casts": Case("style", "casts", "casts(threshold)", {"threshold": "torch.linspace(-2, 2, HEADS)"}),
    "mask_and_score": Case("style", "both(7)"),
}  # fmt: skip
