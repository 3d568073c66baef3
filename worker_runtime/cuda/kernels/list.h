// SPDX-License-Identifier: Apache-2.0
//
// Every kernel that is launched by name: KERNEL(name, struct). Expanded into device entries
// (device/*.cu) and into the host executor's table (host_executor.cc), so that neither can have
// one that the other lacks. A family a macro, so that families compile side by side.
#pragma once

#define MUSTER_ELEMENTWISE_KERNELS_OF(KERNEL, name, S)             \
  KERNEL(muster_narrow_##name, Cast<float, S>)                     \
  KERNEL(muster_widen_##name, Cast<S, float>)                      \
  KERNEL(muster_add_bias_##name, AddBias<S, S>)                    \
  KERNEL(muster_add_bias_wide_##name, AddBias<S, float>)           \
  KERNEL(muster_add_residual_##name, AddResidual<S, S>)            \
  KERNEL(muster_add_residual_wide_##name, AddResidual<S, float>)   \
  KERNEL(muster_bias_gelu_##name, BiasGelu<S, S>)                  \
  KERNEL(muster_bias_gelu_wide_##name, BiasGelu<S, float>)         \
  KERNEL(muster_gelu_##name, Gelu<S>)                              \
  KERNEL(muster_gelu_backward_##name, GeluBackward<S, S>)          \
  KERNEL(muster_gelu_backward_wide_##name, GeluBackward<S, float>) \
  KERNEL(muster_column_partials_##name, ColumnPartials<S>)

#define MUSTER_ELEMENTWISE_KERNELS(KERNEL)                     \
  KERNEL(muster_add, Add)                                      \
  KERNEL(muster_add_partials, AddPartials)                     \
  KERNEL(muster_add_bias_f32, AddBias<float, float>)           \
  KERNEL(muster_add_residual_f32, AddResidual<float, float>)   \
  KERNEL(muster_bias_gelu_f32, BiasGelu<float, float>)         \
  KERNEL(muster_gelu_f32, Gelu<float>)                         \
  KERNEL(muster_gelu_backward_f32, GeluBackward<float, float>) \
  KERNEL(muster_column_partials_f32, ColumnPartials<float>)    \
  MUSTER_ELEMENTWISE_KERNELS_OF(KERNEL, bf16, Bf16)            \
  MUSTER_ELEMENTWISE_KERNELS_OF(KERNEL, f16, F16)

// Tensor cores for head sizes 64 and 128, in 16 bits; plain ones for all others.
#define MUSTER_TENSOR_ATTENTION_KERNELS_OF(KERNEL, name, S, head)                        \
  KERNEL(muster_attention_##head##_##name, Attention<S, head>)                           \
  KERNEL(muster_attention_key_gradients_##head##_##name, AttentionKeyGradients<S, head>) \
  KERNEL(muster_attention_query_gradient_##head##_##name, AttentionQueryGradient<S, head>)

#define MUSTER_PLAIN_ATTENTION_KERNELS_OF(KERNEL, name, S)            \
  KERNEL(muster_attention_dots_##name, AttentionDots<S>)              \
  KERNEL(muster_attention_##name, PlainAttention<S>)                  \
  KERNEL(muster_attention_key_gradients_##name, PlainKeyGradients<S>) \
  KERNEL(muster_attention_query_gradient_##name, PlainQueryGradient<S>)

#define MUSTER_ATTENTION_KERNELS(KERNEL)                      \
  MUSTER_TENSOR_ATTENTION_KERNELS_OF(KERNEL, bf16, Bf16, 64)  \
  MUSTER_TENSOR_ATTENTION_KERNELS_OF(KERNEL, bf16, Bf16, 128) \
  MUSTER_TENSOR_ATTENTION_KERNELS_OF(KERNEL, f16, F16, 64)    \
  MUSTER_TENSOR_ATTENTION_KERNELS_OF(KERNEL, f16, F16, 128)   \
  MUSTER_PLAIN_ATTENTION_KERNELS_OF(KERNEL, f32, float)       \
  MUSTER_PLAIN_ATTENTION_KERNELS_OF(KERNEL, bf16, Bf16)       \
  MUSTER_PLAIN_ATTENTION_KERNELS_OF(KERNEL, f16, F16)

#define MUSTER_NORM_KERNELS_OF(KERNEL, name, S)           \
  KERNEL(muster_norm_##name, NormForward<S>)              \
  KERNEL(muster_norm_backward_##name, NormBackward<S, S>) \
  KERNEL(muster_norm_partials_##name, NormPartials<S, S>)

#define MUSTER_NORM_KERNELS_WIDE(KERNEL, name, S)                  \
  KERNEL(muster_norm_backward_wide_##name, NormBackward<S, float>) \
  KERNEL(muster_norm_partials_wide_##name, NormPartials<S, float>)

#define MUSTER_NORM_KERNELS(KERNEL)            \
  MUSTER_NORM_KERNELS_OF(KERNEL, f32, float)   \
  MUSTER_NORM_KERNELS_OF(KERNEL, bf16, Bf16)   \
  MUSTER_NORM_KERNELS_OF(KERNEL, f16, F16)     \
  MUSTER_NORM_KERNELS_WIDE(KERNEL, bf16, Bf16) \
  MUSTER_NORM_KERNELS_WIDE(KERNEL, f16, F16)

#define MUSTER_LOSS_KERNELS(KERNEL)                     \
  KERNEL(muster_sum_losses, SumLosses)                  \
  KERNEL(muster_cross_entropy_f32, CrossEntropy<float>) \
  KERNEL(muster_cross_entropy_bf16, CrossEntropy<Bf16>) \
  KERNEL(muster_cross_entropy_f16, CrossEntropy<F16>)

#define MUSTER_EMBEDDING_KERNELS_OF(KERNEL, name, S)     \
  KERNEL(muster_embed_##name, Embed<S>)                  \
  KERNEL(muster_token_gradient_##name, TokenGradient<S>) \
  KERNEL(muster_position_gradient_##name, PositionGradient<S>)

#define MUSTER_EMBEDDING_KERNELS(KERNEL)          \
  MUSTER_EMBEDDING_KERNELS_OF(KERNEL, f32, float) \
  MUSTER_EMBEDDING_KERNELS_OF(KERNEL, bf16, Bf16) \
  MUSTER_EMBEDDING_KERNELS_OF(KERNEL, f16, F16)

#define MUSTER_OPTIMIZER_KERNELS(KERNEL)                 \
  KERNEL(muster_check_norm, CheckNorm)                   \
  KERNEL(muster_lowest_index, LowestIndex)               \
  KERNEL(muster_adamw_f32, AdamW<float>)                 \
  KERNEL(muster_adamw_bf16, AdamW<Bf16>)                 \
  KERNEL(muster_adamw_f16, AdamW<F16>)                   \
  KERNEL(muster_adamw_by_chance_bf16, AdamW<Bf16, true>) \
  KERNEL(muster_adamw_by_chance_f16, AdamW<F16, true>)

#define MUSTER_BUCKET_KERNELS_OF(KERNEL, name, W)  \
  KERNEL(muster_pack_bucket_##name, PackBucket<W>) \
  KERNEL(muster_reduce_slices_##name, ReduceSlices<W>)

#define MUSTER_BUCKET_KERNELS(KERNEL)          \
  MUSTER_BUCKET_KERNELS_OF(KERNEL, f32, float) \
  MUSTER_BUCKET_KERNELS_OF(KERNEL, bf16, Bf16) \
  MUSTER_BUCKET_KERNELS_OF(KERNEL, f16, F16)
