/* The rows of a block, and the word in which its AIC says how many of them are multiplied. */
#ifndef SIMPLER_SCENES_FUSED_ROWS_H
#define SIMPLER_SCENES_FUSED_ROWS_H

#include <simpler/kernel.h>

typedef struct Rows {
    uint32_t first, end;
} Rows;

static inline Rows rows_of_block(const SimplerKernelArgs *args) {
    uint64_t rows = args->tensors[0]->shapes[0];
    Rows of = {(uint32_t)(rows * args->block_index / args->block_count),
               (uint32_t)(rows * (args->block_index + 1) / args->block_count)};
    return of;
}

static inline uint32_t *done_of_block(const SimplerKernelArgs *args) {
    return (uint32_t *)simpler_tensor_data(args->tensors[4]) + args->block_index;
}

#endif
