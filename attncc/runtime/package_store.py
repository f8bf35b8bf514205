"""The files of a built variant: plans (`*.plan.json`), machine code (`*.cubin`), and the latter's `manifest.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..diagnostics import AttnccError, Diagnostic
from ..ir import Variant
from ..schedule.kernel_names import kernel_names
from ..schedule.plan import BACKWARD_PASSES, FORWARD_PASSES, PASSES, KernelPlan
from ..schedule.plan_json import from_json
from .store import Configuration, MachineCode

PLAN_SUFFIX = ".plan.json"
MANIFEST = "manifest.json"

_CONFIGURATION = r"(?P<dtype>([a-z]+\d+)+)_d(?P<head_dim>\d+)(x(?P<value>\d+))?_(?P<target>sm_\d+a?)"
_FORWARD = re.compile(rf"(?P<variant>\w+)_forward_{_CONFIGURATION}")


class PackageStore:
    """See `store.KernelStore`. A folder without machine code, as in attncc's repository, runs on the CPU alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[tuple[Configuration, str, str], str] = {}  # by configuration, target and pass
        names = sorted(path.name.removesuffix(PLAN_SUFFIX) for path in folder.glob(f"*{PLAN_SUFFIX}"))
        for name, found in _read_names(names):
            head_dim = int(found["head_dim"])
            configuration = Configuration(found["dtype"], head_dim, int(found["value"] or head_dim))
            self._names[configuration, found["target"], found["pass"]] = name
        if not self._names:
            raise AttnccError(_damaged(folder, f"no {PLAN_SUFFIX} file"))

    def __reduce__(self) -> tuple[Any, ...]:
        """By its folder, which may be built anew before it is read."""
        return PackageStore, (self._folder,)

    @cached_property
    def variant(self) -> Variant:
        return self._plan(next(iter(self._names.values()))).variant

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        return tuple(dict.fromkeys(configuration for configuration, _, _ in self._names))

    def targets(self, configuration: Configuration) -> tuple[str, ...]:
        return tuple(dict.fromkeys(target for item, target, _ in self._names if item == configuration))

    def plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        target = self.targets(configuration)[0] if target is None else target
        names = (self._names.get((configuration, target, pass_name)) for pass_name in FORWARD_PASSES)
        return tuple(self._plan(name) for name in names if name is not None)

    def backward_plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        of_target = self.targets(configuration)[0] if target is None else target
        keys, rows, patches = (self._names.get((configuration, of_target, pass_name)) for pass_name in BACKWARD_PASSES)
        plans = tuple(self._plan(name) for name in (keys, rows, patches) if name is not None)
        if keys is None or (rows is None and plans[0].separates_dq):
            if target is None:
                return ()
            raise AttnccError(
                Diagnostic(
                    "A520",
                    f"{self.variant.name} was built without its backward pass",
                    notes=(f"{self._folder} has no such plan for {configuration.name} on {target}",),
                    help=f"build it: attncc build FILE --backward --arch {target}",
                )
            )
        return plans

    def check_backward(self, configuration: Configuration, target: str) -> None:
        self.backward_plans(configuration, target)

    def report(self) -> Mapping[str, Mapping[str, Any]]:
        return self._manifest

    def machine_codes(self, plans: Sequence[KernelPlan]) -> Mapping[str, MachineCode]:
        return {name: self._machine_code(name) for plan in plans for name in kernel_names(plan)}

    def _machine_code(self, name: str) -> MachineCode:
        entry = self._manifest.get(name)
        try:
            image = (self._folder / f"{name}.cubin").read_bytes()
        except OSError:
            entry = None
        if entry is None:
            raise AttnccError(
                Diagnostic(
                    "A505",
                    f"{self.variant.name} has no machine code for this GPU: {name}.cubin is not in {self._folder}",
                    help=f"build it: attncc build FILE --arch {name[name.rindex('sm_') :]}",
                )
            )
        return MachineCode(image, entry["nvrtc"], entry["entry"], entry["threads"], entry["dynamic_shared_bytes"])

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        """What the build says of each kernel; nothing where it compiled none."""
        path = self._folder / MANIFEST
        try:
            kernels: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["kernels"]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError) as error:
            raise AttnccError(_damaged(self._folder, f"{MANIFEST}: {error}")) from None
        return kernels

    @cache  # noqa: B019  (stores live as long as the process)
    def _plan(self, name: str) -> KernelPlan:
        path = self._folder / f"{name}{PLAN_SUFFIX}"
        try:
            plan = from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise AttnccError(_damaged(self._folder, f"{path.name}: {error}")) from None
        assert isinstance(plan, KernelPlan)
        return plan


def _read_names(names: Sequence[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Names of plans, and what is in them. The variant is what stands before `_forward`, which each has a plan of: its
    own name may end as that of a pass."""
    for variant in dict.fromkeys(found["variant"] for found in map(_FORWARD.fullmatch, names) if found):
        pattern = re.compile(rf"{variant}_(?P<pass>{'|'.join(PASSES)})_{_CONFIGURATION}")
        yield from ((name, found) for name in names if (found := pattern.fullmatch(name)))


def _damaged(folder: Path, what: str) -> Diagnostic:
    return Diagnostic(
        "A507", f"the built package {folder} is damaged: {what}", help="build it again: attncc build FILE"
    )
