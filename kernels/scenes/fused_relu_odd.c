/* The second AIV of fused_matmul. */
#define PARITY 1
#include "fused_relu.h"
