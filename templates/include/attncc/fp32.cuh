#include "attncc/math.cuh"
#include "attncc/output.cuh"

struct Dtype : Unrounded, PowersOfE {
    static constexpr unsigned SIGN_BITS = 0x80000000;
};
