from __future__ import annotations

from tests.unit.import_flex.snippets import codes, lines, mask  # noqa: F401


def test_locals_become_lets_where_they_are_more_than_a_name(lines) -> None:  # noqa: F811
    assert lines(
        """
        def mod(b, h, q_idx, kv_idx):
            q, k = q_idx, kv_idx
            d = q - k
            near: bool = d < 5
            d += 1
            return near & (d > 1) & (d != 3)
        """
    ) == ["let d = q_idx - kv_idx", "let d_2 = d + 1", "keep if d < 5", "keep if d_2 > 1", "keep if d_2 != 3"]


def test_dead_code_leaves_nothing(lines) -> None:  # noqa: F811
    python = """
        def mod(b, h, q_idx, kv_idx):
            '''Says what it does.'''
            assert q_idx is not None
            unused = table[q_idx]
            print(q_idx)
            return q_idx >= kv_idx
            return unused
        """
    assert lines(python) == ["keep if q_idx >= kv_idx"]


def test_known_branches_and_loops(lines) -> None:  # noqa: F811
    python = """
        def make(n, flip=False, extra=None):
            def mod(b, h, q_idx, kv_idx):
                if flip:
                    q_idx, kv_idx = kv_idx, q_idx
                elif extra is None and n > 2:
                    q_idx = q_idx + 1
                else:
                    raise ValueError
                found = q_idx == n
                for i in range(n):
                    if i % 2:
                        continue_at = i
                    else:
                        found = found | (kv_idx == i)
                return found if not flip else ~found
            return mod
        """
    assert lines(python, "make(3)") == [
        "const n: int = 3", "let q_idx_ = q_idx + 1", "keep if q_idx_ == n or kv_idx == 0 or kv_idx == 2",
    ]  # fmt: skip
    assert lines(python, "make(1, flip=True)")[1:] == ["let found = kv_idx == n or q_idx == 0", "keep if not found"]


def test_walrus_and_comprehensions(lines) -> None:  # noqa: F811
    assert lines(mask("((d := q_idx - kv_idx) > 1) & (d < 5)")) == [
        "let d = q_idx - kv_idx", "keep if d > 1", "keep if d < 5",
    ]  # fmt: skip
    assert lines(mask("all([q_idx != i for i in (3, 4)])")) == ["keep if q_idx != 3", "keep if q_idx != 4"]
    assert lines(mask("any(q_idx == i * h for i in range(5))")) == ["keep if any(q_idx == i * h for i in range(5))"]


def test_lists_that_change_outside(lines) -> None:  # noqa: F811
    python = """
        masks = []
        masks.append(lambda b, h, q, k: q >= k)
        masks += [lambda b, h, q, k: q != 7]
        mod = and_masks(*masks)
        """
    assert lines(python) == ["keep if q_idx >= kv_idx", "keep if q_idx != 7"]
    for change in ("masks.pop()", "masks[0] = 1", "for i in range(n):\n            masks.append(i)"):
        assert codes(lines, f"{python}\n        {change}\n        mod = and_masks(*masks)\n") == ["A706"]


def test_what_is_set_in_an_unknown_way_becomes_an_input(lines) -> None:  # noqa: F811
    python = """
        import os
        window = 4
        if os.environ["WIDE"]:
            window = 8
        while limit < 3:
            limit = limit + 1
        try:
            import flash
            step = 2
        except ImportError:
            step = 3
        with open("x") as file:
            size = file.read()
        def mod(b, h, q_idx, kv_idx):
            return (q_idx - kv_idx < window) & (kv_idx < limit) & (q_idx % step == 0) & (kv_idx > size)
        """
    assert lines(python) == [
        "const step: int = 2", "input window: i32", "input limit:  i32", "input size:   i32",
        "keep if q_idx - kv_idx < window", "keep if kv_idx < limit", "keep if q_idx % step == 0",
        "keep if kv_idx > size",
    ]  # fmt: skip


def test_several_errors_of_one_mod(lines) -> None:  # noqa: F811
    python = """
        def mod(b, h, q_idx, kv_idx):
            while q_idx > 1:
                q_idx = q_idx - 1
            x = torch.cumsum(kv_idx, 0)
            del x
            return (x > q_idx) & table[kv_idx:]
        """
    assert codes(lines, python) == ["A703", "A704", "A703", "A707"]


def test_a_tensor_is_changed_under_all_of_its_names(lines) -> None:  # noqa: F811
    """As torch does it: `x += y` writes into the tensor that x names."""
    python = """
        from torch.nn.attention.flex_attention import and_masks

        def shifted(b, h, q_idx, kv_idx):
            kv_idx -= 4
            return q_idx >= kv_idx

        def mod(b, h, q_idx, kv_idx):
            k = kv_idx
            kept = k.clone()
            k //= 3
            return (q_idx >= kv_idx) & (kept > 2)

        both = and_masks(shifted, lambda b, h, q_idx, kv_idx: kv_idx != 2)
        """
    assert lines(python) == ["let kept = kv_idx", "let k = kv_idx // 3", "keep if q_idx >= k", "keep if kept > 2"]
    assert lines(python, "both") == ["let kv_idx_ = kv_idx - 4", "keep if q_idx >= kv_idx_", "keep if kv_idx_ != 2"]
