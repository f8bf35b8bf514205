#include "memory/barrier.cuh"

// One more warp loads, and runs ahead: a barrier of the block joins the others alone.
#define __syncthreads() named_wait(1, THREADS)
