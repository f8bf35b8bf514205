/// What normalisers that keep nothing of a row have in common: maxima never move, results are finished as they are.
/// The interface is that of normalize_softmax.cuh and of stale_max_softmax.cuh.
struct NoRowState {
    __device__ __forceinline__ float exponent(int, int, float score) const { return score; }

    template <class Scores>
    __device__ __forceinline__ void to_exponents(Scores&) const {}

    template <class... ScoresAndOut>
    __device__ __forceinline__ void online_softmax_step(ScoresAndOut&...) {}

    template <class Scores>
    __device__ __forceinline__ bool max_still_valid(const Scores&) const { return true; }

    template <class Scores, class Out>
    __device__ __forceinline__ void settle(Scores&, Out&) {}

    __device__ __forceinline__ void begin_tile() {}

    __device__ __forceinline__ bool has_max() const { return true; }

    __device__ __forceinline__ void keep_max() {}

    __device__ __forceinline__ bool max_still_valid(float) const { return true; }

    template <class Probs>
    __device__ __forceinline__ bool lowered(Probs&, float) const { return true; }

    template <class Probs>
    __device__ __forceinline__ void leave_room(Probs&, float) const {}

    template <class Out>
    __device__ __forceinline__ void rescale_rows(Out&) const {}

    __device__ __forceinline__ void end_tile() {}

    __device__ __forceinline__ void load_row(int, int, float, float) {}

    __device__ __forceinline__ void read_row(int, int, float& row_max, float& sum) const { row_max = sum = 0; }

    __device__ __forceinline__ float finish(int, int, float, float& row_max, float& sum) const {
        row_max = sum = 0;
        return 1;
    }
};
