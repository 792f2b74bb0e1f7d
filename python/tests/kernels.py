"""Callables that several tests run."""

from processes import ROOT

from simpler import Callable, In, InOut, Out, Source

_SCENES = ROOT / "kernels" / "scenes"

_ONE_TASK = """
#include <simpler/orchestration.h>
/* One task over the first tensor, with all scalars. */
SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    SimplerTensor tensor = args->tensors[0];
    SimplerTaskArg list[] = {{&tensor, SIMPLER_INOUT}};
    SimplerTask task = simpler_task(list, 1);
    task.aiv0 = 0;
    task.scalars = args->scalars;
    task.scalar_count = args->scalar_count;
    return api->submit_task(run, &task) < 0;
}
"""

_SLEEP = """
#include <simpler/kernel.h>
#include <time.h>
/* Adds 1 to the first int32, after scalar 0 milliseconds. A kernel may not block; on a simulated chip nobody minds. */
void kernel_entry(const SimplerKernelArgs *args) {
    struct timespec left = {args->scalars[0] / 1000, args->scalars[0] % 1000 * 1000000};
    nanosleep(&left, 0);
    *(int *)simpler_tensor_data(args->tensors[0]) += 1;
}
"""

_SCALARS = """
#include <simpler/kernel.h>
/* Stores the scalars as they came, two int32 each. */
void kernel_entry(const SimplerKernelArgs *args) {
    uint64_t *words = simpler_tensor_data(args->tensors[0]);
    for (uint32_t i = 0; i < args->scalar_count; i++) words[i] = args->scalars[i];
}
"""

_FAIL = """
#include <simpler/orchestration.h>
SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    (void)api, (void)run, (void)args;
    return 7;
}
"""

_SHAPE = """
#include <simpler/orchestration.h>
/* Leaves dtype, dimensions and shape of the first tensor in the second, by a task that gets them as scalars. */
SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    const SimplerTensor *of = &args->tensors[0];
    SimplerTensor out = args->tensors[1];
    uint64_t scalars[] = {of->dtype, of->ndims, of->shapes[0], of->shapes[1], of->shapes[2], of->shapes[3], of->shapes[4]};
    SimplerTaskArg list[] = {{&out, SIMPLER_INOUT}};
    SimplerTask task = simpler_task(list, 1);
    task.aiv0 = 0;
    task.scalars = scalars;
    task.scalar_count = 7;
    return api->submit_task(run, &task) < 0;
}
"""


def vector_add() -> Callable:
    """c = a + b of float32, in as many tiles as the scalar says."""
    return Callable.compile(
        "vector_add",
        orchestration=_SCENES / "vector_add.c",
        kernels={_SCENES / "add.c": "aiv"},
        headers=[_SCENES / "views.h"],
        signature=[In, In, Out],
    )


def matmul_tiles() -> Callable:
    """c += a b of square float32 matrices in square tiles, whose side is the scalar."""
    return Callable.compile(
        "matmul_tiles",
        orchestration=_SCENES / "matmul_tiles.c",
        kernels={_SCENES / "multiply_add.c": "aic"},
        headers=[_SCENES / "views.h"],
        signature=[In, In, InOut],
    )


def sleep() -> Callable:
    """Adds 1 to an int32 after so many milliseconds."""
    return Callable.compile(
        "sleep", orchestration=Source("one_task.c", _ONE_TASK), kernels={Source("sleep.c", _SLEEP): "aiv"}
    )


def scalars() -> Callable:
    """Stores its scalars, 8 bytes each."""
    return Callable.compile(
        "scalars", orchestration=Source("one_task.c", _ONE_TASK), kernels={Source("scalars.c", _SCALARS): "aiv"}
    )


def shape() -> Callable:
    """Stores dtype, dimensions and five extents of its first tensor in its second, 8 bytes each."""
    return Callable.compile(
        "shape", orchestration=Source("shape.c", _SHAPE), kernels={Source("scalars.c", _SCALARS): "aiv"}
    )


def failing() -> Callable:
    """Fails every run."""
    return Callable.compile("failing", orchestration=Source("failing.c", _FAIL), kernels={})
