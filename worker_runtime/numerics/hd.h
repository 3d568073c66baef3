// SPDX-License-Identifier: Apache-2.0
//
// Numerics that host and device share are written once, in headers. MUSTER_HD marks such a
// function. On the host it is nothing but "always inlined": files compiled for different
// instruction sets include the same header, and an out-of-line copy made for the newest one must
// never be the copy that an old processor calls.
#pragma once

#if defined(__CUDACC__)
#define MUSTER_HD __host__ __device__ inline
#else
#define MUSTER_HD [[gnu::always_inline]] inline
#endif
