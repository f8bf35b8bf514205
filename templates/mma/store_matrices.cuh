/// Stores four fragments of 8 rows of 16 bytes: lanes 8i to 8i + 7 give the addresses of the rows of fragment i.
__device__ __forceinline__ void store_matrices(unsigned address, const unsigned (&x)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}
