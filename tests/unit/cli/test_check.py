"""`attncc check` of schedules for kernels in 2-D tiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_cli import run

DILATED = "keep if 0 <= q_pos - kv_idx < 600 and (q_pos - kv_idx) % 6 == 0"


@pytest.mark.parametrize(
    ("keep", "schedules", "code"),
    [
        ("keep if causal()", "schedule s for mine patches on sm_80 { stages = 2 }", "A409"),
        ("keep if causal()", "schedule s for mine backward_patches on sm_90a { stages = 2 }", "A409"),
        (DILATED, "schedule s for mine patches on sm_80 { stages = 2 }", None),
        (DILATED, "schedule s for mine patches on sm_80 { stages = 2 } schedule t for mine on sm_80 { skip = never }",
         "A409"),
        (DILATED, "schedule s for mine backward_patches on sm_90 { stages = 2 }", "A409"),
        (DILATED, "schedule s for mine backward_patches on sm_90a {}", None),
    ],
)  # fmt: skip
def test_check_refuses_schedules_of_tiles_2d_as_builds_do(
    tmp_path: Path, keep: str, schedules: str, code: str | None
) -> None:
    path = tmp_path / "mine.attn"
    path.write_text(f"attn 1\nimport masks\nvariant mine {{ {keep} }}\n{schedules}\n")
    shown = run("check", path, status=int(code is not None)).output
    assert f"error[{code}]" in shown if code else ": ok" in shown
