#include "attncc/output.cuh"

struct Dtype : Unrounded {
    static constexpr unsigned SIGN_BITS = 0x80000000;
};
