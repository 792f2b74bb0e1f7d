/* The first AIV of fused_matmul. */
#define PARITY 0
#include "fused_relu.h"
