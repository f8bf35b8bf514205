"""A stand-in for Nsight Compute: it prints what the real one prints, and checks what it is asked.

FAKE_NCU says what happens: `counts`, `forbidden`, `old` (it doesn't know the counters of TMA), `older` (nor those of
HBM), `oldest` (nor an option), `nothing` (no kernel is seen), `crash` (the process fails), `killed`, `gap` and `nan` (a
counter has no value), `rubbish` (a table that is none). FAKE_KERNELS: the kernels seen, with commas between them. It
doesn't run the process.
"""

import os
import signal
import sys
from pathlib import Path

arguments = sys.argv[1:]
mode, kernels = os.environ["FAKE_NCU"], os.environ["FAKE_KERNELS"].split(",")
log = Path(arguments[arguments.index("--log-file") + 1])
metrics = arguments[arguments.index("--metrics") + 1].split(",")
process = arguments[arguments.index("--log-file") + 2 :]
assert process[1:3] == ["-m", "attncc.measure.job"] and Path(process[3]).exists(), process
for option, value in (("--profile-from-start", "off"), ("--print-units", "base"), ("--clock-control", "none")):
    assert arguments[arguments.index(option) + 1] == value

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def row(number: int, kernel: str, metric: str) -> str:
    lost = {"gap": "n/a", "nan": "nan"}.get(mode) if metric.startswith("dram") else None
    value = lost or f"{1_000_000 * (number + 1):,}"
    unit = "byte" if "bytes" in metric else "sector"
    return (
        f'"{number}","42","python3","127.0.0.1","{kernel}","1","7","(384, 1, 1)","(132, 1, 1)","0","9.0",'
        f'"Command line profiler metrics","{metric}","{unit}","{value}"'
    )


lines = ["==PROF== Connected to process 42 (/usr/bin/python3)"]
if mode == "forbidden":
    lines.append(
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
        "the target device 0. For instructions on enabling permissions and to get more information see "
        "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
    )
elif mode in ("old", "older") and (unknown := [item for item in metrics if "tma" in item or mode == "older"]):
    lines.append(f"==ERROR== Failed to find metric {unknown[0]}")
elif mode == "oldest":
    lines.append("==ERROR== unrecognised option '--print-kernel-base'. Use --help for further details.")
elif mode == "rubbish":
    lines += [HEAD, '"' + "x" * 200_000]
elif mode == "killed":
    os.kill(os.getpid(), signal.SIGSEGV)
elif mode == "nothing":
    lines.append("==WARNING== No kernels were profiled.")
elif mode == "crash":
    print("error[A503]: a kernel can't be launched here", file=sys.stderr)
    lines.append("==ERROR== The application returned an error code (1).")
else:
    lines += [f'==PROF== Profiling "{kernel}" - {n}: 0%....50%....100% - 3 passes' for n, kernel in enumerate(kernels)]
    lines += ["==PROF== Disconnected from process 42", HEAD]
    lines += [row(n, kernel, metric) for n, kernel in enumerate(kernels) for metric in metrics]
log.write_text("\n".join(lines) + "\n")
sys.exit(mode in ("forbidden", "older", "oldest", "crash") or any("Failed" in line for line in lines))
