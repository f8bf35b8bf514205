/// The keys and values of one head of one sequence, of 8 bits. The interface is that of kv_rows.cuh.
template <class Rows>
struct StoredKv {
    Rows keys, values;
    int kv_len;
    float value_mantissa;  // value_mantissa.cuh

    template <class Stored, class Order, int THREADS, int COLUMNS>
    __device__ __forceinline__ void load_keys(unsigned target, int first, int count) const {
        load_stored_tile<Stored, THREADS, COLUMNS>(target, keys, first, count);
    }

    template <class Stored, class Order, int THREADS, int COLUMNS>
    __device__ __forceinline__ void load_values(unsigned target, int first, int count) const {
        load_stored_tile<Stored, THREADS, COLUMNS>(target, values, first, count);
    }
};
