/// Whether V is the first columns of K, as the latents of MLA are (DeepSeek-V2, section 2.1): the call tells, by where both are.
template <class Params>
__device__ __forceinline__ bool values_are_keys(const Params& params) {
    return params.v == params.k && params.v_stride_batch == params.k_stride_batch && params.v_stride_head == params.k_stride_head &&
           params.v_stride_row == params.k_stride_row;
}
