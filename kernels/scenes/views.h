/* Views of row-major tensors of floats, and tasks over them: what the orchestrations of the scenes share. */
#ifndef SIMPLER_SCENES_VIEWS_H
#define SIMPLER_SCENES_VIEWS_H

#include <simpler/orchestration.h>

/* count floats from the first-th of a tensor on. */
static inline SimplerTensor slice(const SimplerTensor *of, uint64_t first, uint32_t count) {
    SimplerTensor view = *of;
    view.start_offset += first * sizeof(float);
    view.extent = count * sizeof(float);
    view.ndims = 1;
    view.shapes[0] = count;
    view.contiguous = 1;
    return view;
}

/* rows x columns of a matrix, from (row, column) on. */
static inline SimplerTensor tile(const SimplerTensor *of, uint64_t row, uint64_t column, uint32_t rows,
                                 uint32_t columns) {
    uint64_t width = of->shapes[1];
    SimplerTensor view = *of;
    view.start_offset += (row * width + column) * sizeof(float);
    view.extent = ((rows - 1) * width + columns) * sizeof(float);
    view.shapes[0] = rows;
    view.shapes[1] = columns;
    view.contiguous = 0;
    view.strides[0] = width * sizeof(float);
    view.strides[1] = sizeof(float);
    return view;
}

/* A tensor of count floats that the runtime is to allocate. */
static inline SimplerTensor fresh(uint32_t count) {
    SimplerTensor tensor = {0};
    tensor.bytes = tensor.extent = count * sizeof(float);
    tensor.owner_task = SIMPLER_NO_TASK;
    tensor.ndims = 1;
    tensor.shapes[0] = count;
    tensor.contiguous = 1;
    tensor.address_space = SIMPLER_DEVICE_MEMORY;
    return tensor;
}

#endif
