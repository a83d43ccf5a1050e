"""Compile the kernels as a recurrence would ask for them, for a GPU that this machine need not have.

    python -m tests.compile_triton '{"size": 128, "precision": "bfloat16"}'
    python -m tests.compile_triton '{"model": "onlstm", "hidden_size": 1150, "capability": 100}'

prints for each kernel its shared memory, registers, spills, their share of the instructions of the innermost
loops that multiply, the number of instructions for the matrix units, and the share of a multiprocessor's 64
warps that can be there at once. The compute capability is 90 (H100, H200) or 100 (B200). Tiles are
smaller where there are more `multiprocessors` than tiles.
"""

import json
import re
import subprocess
import sys
import tempfile

import torch

from onlstm import ONLSTM
from onlstm.backends import triton_kernels as onlstm_kernels
from onlstm.backends import triton_steps
from ordered_memory import OrderedMemory
from ordered_memory.backends import triton
from ordered_memory.backends.triton import call, kernels_backward, kernels_forward, plan
from ordered_memory.memory import initial_state

REGISTERS, SHARED, WARPS = 65_536, 227 * 1024, 64
"""What a multiprocessor of either has for the kernels on it."""


class Driver:
    """A driver that only says what to compile for."""

    def __init__(self, capability):
        self.capability = capability

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0


class Compiled:
    """In place of a kernel: compiles what would be launched."""

    def __init__(self, kernel, found):
        self.kernel, self.found = kernel, found

    def __getitem__(self, grid):
        def launch(*arguments, **options):
            self.found.append(self.kernel.warmup(*arguments, grid=grid, **options))

        return launch


def compile_recurrence(
    size=128,
    slots=21,
    batch=32,
    precision="float32",
    score="normalized",
    dropout=0.1,
    gradients=True,
    capability=90,
    multiprocessors=132,
):
    """The forward kernel, and with gradients the backward one."""
    from triton.runtime.driver import driver

    found = []
    driver.set_active(Driver(capability))
    kernels_forward.forward_kernel = Compiled(kernels_forward.forward_kernel, found)
    kernels_backward.backward_kernel = Compiled(kernels_backward.backward_kernel, found)
    plan.multiprocessors = lambda device: multiprocessors
    call.check_triton = lambda device: None
    layer = OrderedMemory(
        1, size, slots, score=score, cell_dropout=dropout, attention_dropout=dropout
    ).directions[0]
    inputs = torch.randn(2, batch, size)
    with (
        torch.set_grad_enabled(gradients),
        torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"),
    ):
        masks = layer.dropout_sampler(inputs[0], slots)
        result = triton.run_recurrence(
            inputs, initial_state(batch, slots, inputs), layer.recurrent_modules(), None, masks
        )
    if gradients:
        result.output.sum().backward()
    return found


def compile_onlstm(hidden_size=1150, chunk_size=10, capability=90):
    """Both kernels of ON-LSTM."""
    from triton.runtime.driver import driver

    found = []
    driver.set_active(Driver(capability))
    triton_steps.why_no_triton = triton_steps.check_triton = lambda device: None
    for name in ("forward_kernel", "backward_kernel"):
        setattr(onlstm_kernels, name, Compiled(getattr(onlstm_kernels, name), found))
    layer = ONLSTM(8, hidden_size, chunk_size=chunk_size, backend="triton")
    output, _, distances = layer(torch.randn(1, 2, 8), distances=True)
    (output.sum() + distances.forget.sum() + distances.input.sum()).backward()
    return found


def describe(kernel, capability):
    """What ptxas says of a kernel, and what stands in its machine code."""
    from triton import knobs
    from triton.backends.nvidia.compiler import get_ptxas

    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as source:
        source.write(kernel.asm["ptx"])
        source.flush()
        said = run(
            get_ptxas(capability), "-v", f"--gpu-name=sm_{capability}a", source.name, "-o", "/dev/null"
        ).stderr
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(kernel.asm["cubin"])
        binary.flush()
        instructions, loops = read_code(run(knobs.nvidia.nvdisasm, "-c", binary.name).stdout)
    products = [loop for loop in loops if count(loop, "HMMA|FFMA") >= 4]
    warps, shared = kernel.metadata.num_warps, kernel.metadata.shared
    registers = int(re.search(r"Used (\d+) registers", said)[1])
    programs = min(REGISTERS // (registers * 32 * warps), SHARED // max(shared, 1), WARPS // warps)
    return {
        "name": kernel.metadata.name,
        "warps": warps,
        "shared": shared,
        "registers": registers,
        "occupancy": programs * warps / WARPS,
        "spill_bytes": int(re.search(r"(\d+) bytes spill stores", said)[1]),
        "spill_share": max((count(loop, "STL|LDL") / len(loop) for loop in products), default=0.0),
        "matrix_instructions": count(instructions, "HMMA|UTC.MMA|OMMA"),
    }


def run(tool, *arguments):
    return subprocess.run([tool.path, *arguments], capture_output=True, text=True, check=True)


def read_code(text):
    """The instructions, and those of each innermost loop."""
    instructions, labels, jumps = [], {}, []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif instruction := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            if target := re.search(r"BRA.*`\((\.L_x_\d+)\)", instruction[1]):
                jumps.append((len(instructions), target[1]))
            instructions.append(instruction[1])
    loops = [(labels[target], at) for at, target in jumps if labels.get(target, at) < at]
    inner = [
        (start, end)
        for start, end in loops
        if not any(start <= s and e <= end and (s, e) != (start, end) for s, e in loops)
    ]
    return instructions, [instructions[start : end + 1] for start, end in inner]


def count(instructions, pattern):
    return sum(bool(re.search(pattern, instruction)) for instruction in instructions)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    compile_model = compile_onlstm if arguments.pop("model", None) == "onlstm" else compile_recurrence
    kernels = compile_model(**arguments)
    capability = arguments.get("capability", 90)
    print(json.dumps([describe(kernel, capability) for kernel in kernels]))
