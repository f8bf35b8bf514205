// Ordinary accesses to shared memory by address.

__device__ __forceinline__ unsigned load_word(unsigned address) {
    unsigned word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address));
    return word;
}

__device__ __forceinline__ void store_word(unsigned address, unsigned word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

__device__ __forceinline__ void load_words(unsigned address, unsigned (&x)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void store_words(unsigned address, const unsigned (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}
