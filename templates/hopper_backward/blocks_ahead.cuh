#include "hopper_backward/backward_pipeline.cuh"

/// Where a warp beside the producer asks for blocks of keys and loads keys and values, while the tiles of the block before are worked on. It
/// does what the producer requests: the next block, or to ask what it looks at in another head. A stage of keys holds their values.
template <int KEY_STAGES, int STAGES, int KEY_SHARES>
struct Blocks : BackwardPipeline<KEY_STAGES, STAGES, KEY_SHARES, 2 * KEY_STAGES + 1, KEY_STAGES> {
    using Base = BackwardPipeline<KEY_STAGES, STAGES, KEY_SHARES, 2 * KEY_STAGES + 1, KEY_STAGES>;
    static constexpr int VALUE_STAGES = KEY_STAGES;
    static constexpr int GROUP_AT = 40;  // in a stage's work
    static constexpr int REQUEST_AT = Base::BYTES, BYTES = REQUEST_AT + 16;
    static constexpr int CONSUMERS_OF_WEIGHTS = 1;  // both write the same, since all sequences have one scale

    __device__ __forceinline__ unsigned planned(int stage) const { return this->base + 8 * (Base::OF_KEYS + stage); }
    __device__ __forceinline__ unsigned answered(int stage) const { return this->base + 8 * (Base::OF_KEYS + KEY_STAGES + stage); }
    __device__ __forceinline__ unsigned requests() const { return this->base + 8 * (Base::OF_KEYS + 2 * KEY_STAGES); }

    __device__ __forceinline__ void init(int blocks) const {
        this->init_keys(2);
        for (int stage = 0; stage < KEY_STAGES; ++stage) {
            barrier_init(planned(stage), 1);
            barrier_init(answered(stage), 1 + KEY_SHARES);
        }
        barrier_init(requests(), 32);
        this->put_pair(this->base + REQUEST_AT, Base::NO_STAGE, 0);
        this->init_queries(blocks);
    }

    __device__ __forceinline__ void wait_for_values(int) const {}
    __device__ __forceinline__ void leave_values() const {}

    using Base::write;
    __device__ __forceinline__ void write(int stage, const KeyWork& work, int group) const {
        write(stage, work);
        this->put_pair(group_at(stage), group, 0);
    }

    /// How many heads of q share the keys.
    template <class Params>
    __device__ __forceinline__ int group(const Params&, int stage) const {
        int group, unused;
        this->take_pair(group_at(stage), group, unused);
        return group;
    }

    /// By a whole warp: asks for the next block.
    __device__ __forceinline__ void request_next() const { request_that(Base::NO_STAGE, 0); }

    /// What the planner is to ask for, by stage and head; NO_STAGE: what the next block looks at.
    __device__ __forceinline__ void request(int& stage, int& head) const { this->take_pair(this->base + REQUEST_AT, stage, head); }

    /// What a block looks at in a head, its `number`-th. `parity`: that of the stage. Of the first head the planner has asked.
    template <class Params>
    __device__ __forceinline__ void wait_for_answers(const Params& params, int stage, unsigned parity, int head, int number) const {
        if (number > 0) request_that(stage, head);
        barrier_wait(answered(stage), (parity * group(params, stage) + number) % 2);
    }

    /// By a warp that has answered, and by the planner, which has read the request.
    __device__ __forceinline__ void answer(int stage) const { warp_arrive(answered(stage)); }

private:
    /// Each lane arrives for itself, since each has read what was said of the block, and of the head, before.
    __device__ __forceinline__ void request_that(int stage, int head) const {
        if (thread_index() % 32 == 0) this->put_pair(this->base + REQUEST_AT, stage, head);
        barrier_arrive(requests());
    }

    __device__ __forceinline__ unsigned group_at(int stage) const {
        return this->base + Base::WORK_AT + Base::WORK_BYTES * stage + GROUP_AT;
    }
};
