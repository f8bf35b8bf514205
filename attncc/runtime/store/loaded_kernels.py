"""The kernels of one configuration, loaded on one GPU."""

from __future__ import annotations

from ...diagnostics import AttnccError, Diagnostic
from ...kernels.crossings import Chip, Crossings
from ...kernels.decode.facts import MOST_BLOCKS, Decode
from ...kernels.kernel_names import kernel_name
from ...kernels.launched import structs
from ...kernels.pages import SWIZZLE_ROWS
from ...kernels.parameters import HINT_PIECES, input_prepasses
from ...kernels.registry import facts_of
from ...kernels.serving import backward_plan_for, plan_for
from ...problem import Problem
from ...problem.refusal import refused
from ...schedule.plan import SPLIT, KernelPlan, OwnKernel
from ..call.persistent import own_backward_kernels
from ..call.steps import ParamsLayout
from ..cuda.counters import Counters
from ..cuda.device import best_target, target_for
from ..cuda.driver import Device, Driver, Function, driver
from .crossings import chip_of
from .store import Configuration, KernelStore, first_own

_RECORDED = 1024  # launches in graphs whose counters nobody has to clear: 2 MiB


class LoadedKernels:
    """Loads all kernels that launches may need at once, so that nothing is loaded while a CUDA graph is recorded: those
    of forward calls, or of backward ones. So is what their blocks are claimed from.

    AttnccError A505 if nothing was built for this GPU, A504 if the driver is too old for what was, A510 if the driver
    refuses it.
    """

    def __init__(
        self,
        store: KernelStore,
        configuration: Configuration,
        driver: Driver,
        device: Device,
        *,
        backward: bool = False,
        crossings: Crossings | None = None,
    ) -> None:
        """`crossings`: in place of those of this kind of GPU."""
        available = store.targets(configuration)
        target = best_target(available, device.capability)
        if target is None:
            raise AttnccError(_no_target(store.variant.name, available, device, configuration))
        self.driver = driver
        self.device = device
        found = chip_of(device.name, device.multiprocessors)
        chip = found if crossings is None else Chip(device.multiprocessors, crossings)
        has_splits = target in store.targets(configuration._replace(**SPLIT._asdict()))
        self.chip = chip if has_splits else chip.without_splits()
        self.target = target
        self.plans = store.backward_plans(configuration, target) if backward else store.plans(configuration, target)
        self._functions: dict[str, Function] = {}
        for name, code in store.machine_codes(self.plans).items():
            driver.check_version(code.nvrtc)
            self._functions[name] = driver.load(device, code.image, code.entry, code.threads, code.shared_bytes)
        self.counters = Counters(driver, device)
        # Of decode kernels, which whole models record in graphs: one for each launch.
        decodes = not backward and any(isinstance(facts_of(plan), Decode) for plan in self.plans)
        self.arrivals = Counters(driver, device, MOST_BLOCKS, _RECORDED) if decodes else None
        hints = any(prepass.sorted_hint for plan in self.plans for prepass in input_prepasses(plan))
        # The table of a sorted hint that doesn't hold, a byte for each piece.
        self.zeros = driver.zeros(device, HINT_PIECES // 4) if hints else 0
        self._layouts = {name: ParamsLayout(fields) for plan in self.plans for name, fields in structs(plan).items()}

    def plan(self, problem: Problem) -> KernelPlan:
        """The plan that runs a call of these sizes. AttnccError A625 for pages that none loads: e4m3 has no decode."""
        found = plan_for(self.plans, problem, self.chip)
        if not facts_of(found).fits_pages(problem):
            raise refused(
                "A625",
                f"kernels of {found.dtype} can't load these pages",
                expected=f"pages of {SWIZZLE_ROWS} rows, or of a multiple",
                came=f"pages of {problem.page} rows",
                help="make pages of other sizes, or choose another dtype",
            )
        return found

    def own_kernels(self, problem: Problem) -> tuple[OwnKernel, ...]:
        """Those that are faster for a forward call of these sizes, where there are any; best first."""
        return facts_of(self.plan(problem)).own_kernels(problem, self.chip)

    def own_backward_kernels(self, problem: Problem, *, ordered: bool) -> tuple[OwnKernel, ...]:
        """The same of a backward call. `ordered`: its sums are."""
        plan = backward_plan_for(self.plans, problem)
        resident = self.device.multiprocessors * self.function(kernel_name(plan)).resident_blocks
        return own_backward_kernels(plan, problem, resident, ordered=ordered)

    def function(self, name: str) -> Function:
        return self._functions[name]

    def layout(self, name: str) -> ParamsLayout:
        """`struct Params` of the kernel of this name."""
        return self._layouts[name]


class KernelLoader:
    """Those of a store, each loaded when a GPU first asks for it: of forward calls, or of backward ones."""

    def __init__(self, store: KernelStore, *, backward: bool = False, crossings: Crossings | None = None) -> None:
        """`crossings`: those that choose among kernels, in place of each GPU's own."""
        self._store, self._backward, self._crossings = store, backward, crossings
        self._loaded: dict[tuple[Configuration, int], LoadedKernels] = {}

    def serving(self, configuration: Configuration, ordinal: int, problem: Problem) -> LoadedKernels:
        """What runs a forward call of these sizes: of some calls a kernel of their own, where there is one. The first
        of these compiles and loads it. AttnccError as `of`."""
        kernels = self.of(configuration, ordinal)
        return self._own(configuration, kernels, kernels.own_kernels(problem))

    def serving_backward(
        self, configuration: Configuration, ordinal: int, problem: Problem, *, ordered: bool
    ) -> LoadedKernels:
        """The same of a backward call, which may have a kernel of its own where its thread blocks form no clusters and
        the usual one is made for these. `ordered`: its sums are."""
        kernels = self.of(configuration, ordinal)
        return self._own(configuration, kernels, kernels.own_backward_kernels(problem, ordered=ordered))

    def _own(self, configuration: Configuration, kernels: LoadedKernels, asked: tuple[OwnKernel, ...]) -> LoadedKernels:
        own = first_own(self._store, configuration, kernels.target, asked)
        return kernels if own is None else self.of(own, kernels.device.ordinal)

    def of(self, configuration: Configuration, ordinal: int) -> LoadedKernels:
        """What serves a configuration on a GPU. AttnccError as `LoadedKernels`, and A503 without a driver."""
        key = (configuration, ordinal)
        if key not in self._loaded:
            gpu = driver()
            self._loaded[key] = LoadedKernels(
                self._store,
                configuration,
                gpu,
                gpu.device(ordinal),
                backward=self._backward,
                crossings=self._crossings,
            )
        return self._loaded[key]

    def check_backward(self, configuration: Configuration, ordinal: int) -> None:
        """AttnccError A520 if a package has no backward pass for this GPU."""
        target = best_target(self._store.targets(configuration), driver().device(ordinal).capability)
        if target is not None:
            self._store.check_backward(configuration, target)

    def load(self, ordinal: int) -> None:
        """Loads all kernels that are ready on a GPU now, as first calls would; of backward passes, which caches have
        none of, those that are compiled when they are first called, too."""
        store = self._store
        if self._backward:
            wanted = [item._replace(unclustered=own) for item in store.configurations for own in (False, True)]
        else:
            wanted = [item for item in store.ready if not item.unclustered]
        for configuration in wanted:
            kernels = self.of(configuration._replace(**OwnKernel()._asdict()), ordinal)
            if configuration.own_kernel and kernels.target in store.targets(configuration):
                self.of(configuration, ordinal)


def _no_target(variant: str, available: tuple[str, ...], device: Device, asked: Configuration) -> Diagnostic:
    if not available and asked.prefixed:
        what = f"{variant} was built without kernels for sequences that share a prefix"
        help_ = "build it with them: attncc build FILE --serving; or leave `shared_prefix` out"
        return Diagnostic("A505", what, help=help_)
    if not available and asked.kv_dtype is not None:
        pages = " in pages" * asked.paged
        help_ = f"build it with them: attncc build FILE {'--serving ' * asked.paged}--kv-dtype {asked.kv_dtype}"
        what = f"{variant} was built without kernels for caches{pages} of {asked.kv_dtype}"
        return Diagnostic("A505", what, help=help_)
    if not available and asked.paged:
        help_ = "build it with them: attncc build FILE --serving"
        return Diagnostic("A505", f"{variant} was built without kernels for caches in pages", help=help_)
    if not available:
        return Diagnostic(
            "A505", f"{variant} was built for fp64, which runs on the CPU alone", help="pass NumPy arrays"
        )
    built, wanted = ", ".join(available), ",".join([*available, target_for(device.capability)])
    return Diagnostic(
        "A505",
        f"{variant} was built for {built}, none of which runs on {device.name} (compute capability "
        f"{device.capability // 10}.{device.capability % 10})",
        help=f"build it for this GPU as well: attncc build FILE --arch {wanted}",
    )
