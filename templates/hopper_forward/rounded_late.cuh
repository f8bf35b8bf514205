/// The A operands of the next P V, rounded when the one before is done: straight into the registers that it read.
template <class Dtype, int STEPS>
struct Operands {
    __device__ __forceinline__ void round_step(int, const float (*)[4]) {}

    __device__ __forceinline__ void hand_over(unsigned (&probs)[STEPS][4], const float (*x)[4]) const {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) pack_probs<Dtype>(probs[step], x + step * (STEP_KEYS / 8));
    }
};
