#include "common/math.cuh"
#include "memory/output.cuh"

struct Dtype : Unrounded, PowersOfE {
    static constexpr unsigned SIGN_BITS = 0x80000000;
};
