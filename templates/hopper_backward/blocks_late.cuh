#include "hopper_backward/backward_pipeline.cuh"

/// Where the producer asks for a block of keys when it has loaded the tiles of the one before, and waits for what that looks at. There is
/// one stage of values.
template <int KEY_STAGES, int STAGES, int KEY_SHARES>
struct Blocks : BackwardPipeline<KEY_STAGES, STAGES, KEY_SHARES, 2, 1> {
    using Base = BackwardPipeline<KEY_STAGES, STAGES, KEY_SHARES, 2, 1>;
    static constexpr int VALUE_STAGES = 1, BYTES = Base::BYTES;
    static constexpr int CONSUMERS_OF_WEIGHTS = 2;  // each writes its own, when it begins a block

    __device__ __forceinline__ unsigned values_full() const { return this->base + 8 * Base::OF_KEYS; }
    __device__ __forceinline__ unsigned values_empty() const { return this->base + 8 * (Base::OF_KEYS + 1); }

    __device__ __forceinline__ void init(int blocks) const {
        this->init_keys(1);
        barrier_init(values_full(), 1);
        barrier_init(values_empty(), Base::CONSUMER_WARPS);
        this->init_queries(blocks);
    }

    __device__ __forceinline__ void wait_for_values(int order) const { barrier_wait(values_full(), order & VALUES_PARITY); }
    __device__ __forceinline__ void leave_values() const { warp_arrive(values_empty()); }

    /// How many heads of q share the keys. Divided anew each time: a producer has few registers.
    template <class Params>
    __device__ __forceinline__ int group(const Params& params, int) const {
        return params.num_heads / opaque(params.num_kv_heads);
    }

    /// What a block looks at in a head.
    template <class Params>
    __device__ __forceinline__ void wait_for_answers(const Params&, int stage, unsigned, int head, int) const {
        if (thread_index() % 32 == 0) this->ask(stage, head);
        Base::wait_for_ranges();
        Base::wait_for_ranges();
    }

    __device__ __forceinline__ void answer(int) const { Base::wait_for_ranges(); }
};
