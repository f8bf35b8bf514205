"""The files of a built variant: plans (`*.plan.json`), machine code (`*.cubin`), and the latter's `manifest.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ...diagnostics import AttnccError, Diagnostic
from ...ir import Variant
from ...kernels.helpers import append
from ...kernels.kernel_names import kernel_name
from ...kernels.launched import structs
from ...kernels.parameters import Parameter, struct_digest
from ...kernels.registry import backward_facts
from ...schedule.plan import BACKWARD_PASSES, FORWARD_PASSES, PASSES, KernelPlan, OwnKernel
from ...schedule.plan_check import check_plan
from ...schedule.plan_json import from_json
from ...schedule.target import TARGETS
from ..cuda.device import best_target, target_for
from .manifest import Manifest, damaged
from .store import Configuration, MachineCode

PLAN_SUFFIX = ".plan.json"
CODE_SUFFIX = ".cubin"

_DIMS = r"_d(?P<head_dim>\d+)(x(?P<value>\d+))?"
_CONFIGURATION = (
    rf"(?P<dtype>([a-z]+\d+)+){_DIMS}(_kv_(?P<kv>[a-z0-9]+))?(?P<paged>_paged)?(?P<prefix>_prefix)?"
    r"(_rows(?P<rows>\d+))?(?P<one_block>_one_block)?(?P<split>_split)?(?P<unclustered>_unclustered)?(_k(?P<lengths>\d+to\d+))?_(?P<target>sm_\d+a?)"
)
_FORWARD = re.compile(rf"(?P<variant>\w+)_forward_{_CONFIGURATION}")


class PackageStore:
    """See `store.KernelStore`. A folder without machine code, as in attncc's repository, runs on the CPU alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[tuple[Configuration, str, str], str] = {}  # by configuration, target and pass
        self._by_length: dict[tuple[Configuration, str, str], list[str]] = {}  # the same, of ranges of lengths
        names = sorted(path.name.removesuffix(PLAN_SUFFIX) for path in folder.glob(f"*{PLAN_SUFFIX}"))
        for name, found in _read_names(names):
            head_dim = int(found["head_dim"])
            paged, prefixed = bool(found["paged"]), bool(found["prefix"])
            dims = head_dim, int(found["value"] or head_dim)
            flags = (bool(found[name]) for name in ("one_block", "split", "unclustered"))
            own = OwnKernel(int(found["rows"] or 0), *flags)
            configuration = Configuration(found["dtype"], *dims, paged, found["kv"], prefixed, **own._asdict())
            key = configuration, found["target"], found["pass"]
            if found["lengths"] is None:
                self._names[key] = name
            else:
                self._by_length.setdefault(key, []).append(name)
        if not self._names:
            raise damaged(folder, f"no {PLAN_SUFFIX} file")

    def __reduce__(self) -> tuple[Any, ...]:
        """By its folder, which may be built anew before it is read."""
        return PackageStore, (self._folder,)

    @cached_property
    def variant(self) -> Variant:
        """As it was written: plans in 2-D tiles have its mask in other words, those over a shared prefix all of it."""
        own = (name for (of, _, made), name in self._names.items() if made == "forward" and not of.serves_caches)
        return self._plan(next(own)).variant

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        return tuple(dict.fromkeys(item for item, _, _ in self._names if not item.serves_caches))

    @cached_property
    def ready(self) -> tuple[Configuration, ...]:
        return tuple(dict.fromkeys(item for item, _, _ in self._names))

    def targets(self, configuration: Configuration) -> tuple[str, ...]:
        return tuple(dict.fromkeys(target for item, target, _ in self._names if item == configuration))

    def plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        target = self.targets(configuration)[0] if target is None else target
        names = (self._names.get((configuration, target, pass_name)) for pass_name in FORWARD_PASSES)
        plans = tuple(self._plan(name) for name in names if name is not None)
        return plans + self._of_lengths(configuration, target, FORWARD_PASSES)

    def _of_lengths(self, configuration: Configuration, target: str, passes: Sequence[str]) -> tuple[KernelPlan, ...]:
        """The plans for ranges of lengths."""
        names = (self._by_length.get((configuration, target, pass_name), ()) for pass_name in passes)
        return tuple(self._plan(name) for found in names for name in found)

    def backward_plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        of_target = self.targets(configuration)[0] if target is None else target
        keys, rows, tiles_2d = (self._names.get((configuration, of_target, pass_name)) for pass_name in BACKWARD_PASSES)
        plans = tuple(self._plan(name) for name in (keys, rows, tiles_2d) if name is not None)
        lacks = keys is None or (rows is None and backward_facts(plans[0]).separates_dq)
        if lacks and not configuration.own_kernel:  # whose plans may be of lengths alone
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
        return plans + self._of_lengths(configuration, of_target, BACKWARD_PASSES)

    def check_backward(self, configuration: Configuration, target: str) -> None:
        self.backward_plans(configuration, target)

    def report(self) -> Mapping[str, Mapping[str, Any]]:
        return self._manifest.kernels if self._manifest is not None else {}

    def machine_codes(self, plans: Sequence[KernelPlan]) -> Mapping[str, MachineCode]:
        fields = {name: parameters for plan in plans for name, parameters in structs(plan).items()}
        return {name: self._machine_code(name, parameters) for name, parameters in fields.items()}

    def append_code(self, dtype: str, angles: str, capability: int, kv_dtype: str | None = None) -> MachineCode:
        prefix = append.prefix(dtype, angles, kv_dtype)
        ends = [name.removeprefix(prefix) for name in self.report() if name.startswith(prefix)]
        built = [name for name in ends if name in TARGETS]
        target = best_target(built, capability)
        if target is None:
            what = f"{self.variant.name} was built without the kernel that appends to caches of {kv_dtype or dtype}"
            options = "" if kv_dtype is None else f" --kv-dtype {kv_dtype}"
            if built:
                what += f" on this GPU: it has that for {', '.join(built)}"
                options += f" --arch {','.join([*built, target_for(capability)])}"
            help_ = f"build it with that: attncc build FILE --serving{options}"
            raise AttnccError(Diagnostic("A505", what, help=help_))
        return self._machine_code(f"{prefix}{target}", append.parameters(dtype, angles, kv_dtype))

    def _machine_code(self, name: str, parameters: Sequence[Parameter]) -> MachineCode:
        file = f"{name}{CODE_SUFFIX}"
        manifest, entry = self._manifest, self.report().get(name)
        try:
            image = (self._folder / file).read_bytes()
        except FileNotFoundError:
            entry = None
        except OSError as error:
            raise damaged(self._folder, f"{file}: {error}") from None
        if manifest is None or entry is None:
            raise AttnccError(
                Diagnostic(
                    "A505",
                    f"{self.variant.name} has no machine code for this GPU: {file} is not in {self._folder}",
                    help=f"build it: attncc build FILE --arch {name[name.rindex('sm_') :]}",
                )
            )
        manifest.check(file, image)
        manifest.check_params(name, struct_digest(parameters))
        return MachineCode(image, entry["nvrtc"], entry["entry"], entry["threads"], entry["dynamic_shared_bytes"])

    @cached_property
    def _manifest(self) -> Manifest | None:
        """What the build says of each kernel, where it compiled any."""
        return Manifest.read(self._folder)

    @cache  # noqa: B019  (stores live as long as the process)
    def _plan(self, name: str) -> KernelPlan:
        file = f"{name}{PLAN_SUFFIX}"
        try:
            content = (self._folder / file).read_bytes()
            if self._manifest is not None:
                self._manifest.check(file, content)
            return read_plan(name, content)
        except (OSError, ValueError, RecursionError) as error:
            raise damaged(self._folder, f"{file}: {error}") from None


def read_plan(name: str, content: bytes) -> KernelPlan:
    """What the file of the kernel `name` holds. ValueError if no compiler could have written it for this kernel."""
    plan = from_json(json.loads(content))
    if not isinstance(plan, KernelPlan):
        raise ValueError("it is no plan")
    check_plan(plan)
    if kernel_name(plan) != name:
        raise ValueError(f"it is the plan of {kernel_name(plan)}")
    return plan


def _read_names(names: Sequence[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Names of plans, and what is in them. The variant is what stands before `_forward`, which each has a plan of: its
    own name may end as that of a pass."""
    for variant in dict.fromkeys(found["variant"] for found in map(_FORWARD.fullmatch, names) if found):
        pattern = re.compile(rf"{variant}_(?P<pass>{'|'.join(PASSES)})_{_CONFIGURATION}")
        yield from ((name, found) for name in names if (found := pattern.fullmatch(name)))
