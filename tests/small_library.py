"""A small library in C, for tests of what builds, loads and calls the C of the backends."""

import torch

from ordered_memory.backends.runtime.build import Library, load
from ordered_memory.backends.runtime.threads import run_team

CODE = """
#include "common.h"
#include "bf16.h"
#include "team.h"

typedef struct {
    int64_t parts, size; /* of the work; of an array */
    const scalar_t *values; int32_t *who,
        *of;
    scalar_t factor, *const_free;
    const bf16_t *bf16;
    set_blas_threads_t query;
} Pass;
EXPORT_SIZE(Pass)

void scale(const void *arguments, int64_t thread, int64_t threads) {
    const Pass *p = arguments;
    for (int64_t i = thread; i < p->parts; i += threads) {
        p->who[i] = thread;
        p->of[i] = threads;
        for (int64_t j = i * p->size; p->const_free && j < (i + 1) * p->size; j++)
            p->const_free[j] = p->factor * p->values[j];
    }
}
"""


def again(source) -> Library | str:
    """As a new process would load it."""
    load.cache_clear()
    return load(source, torch.float32)


def scale(library, parts=3, threads=1, size=4):
    values = torch.arange(parts * size, dtype=library.dtype)
    result, who, of = torch.zeros_like(values), *torch.zeros(2, parts, dtype=torch.int32)
    struct = library.struct("Pass")(parts=parts, size=size, factor=2)
    struct.point(values=values, who=who, of=of, const_free=result)
    run_team(library, "scale", struct, threads)
    assert torch.equal(result, 2 * values)
    return who.tolist(), of.tolist()
