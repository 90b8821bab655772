// The table of this instruction set: each kernel next to the name it is called by.
#include "backend/cpu/kernels/functions.h"

// The name of the set is the name of its namespace, which a macro of the build gives.
#define ADA_TEXT2(x) #x
#define ADA_TEXT(x) ADA_TEXT2(x)

namespace ada::backend::cpu::ADA_ISA {

// A constant has internal linkage unless it was declared extern.
extern const Kernels kTable;
const Kernels kTable = {.name = ADA_TEXT(ADA_ISA),
                        .widen = Widen,
                        .round = Round,
                        .inspect = Inspect,
                        .exponent_tail = ExponentTail,
                        .channel_magnitudes = ChannelMagnitudes,
                        .channel_moments = ChannelMoments,
                        .batch_norm_forward = BatchNormForward,
                        .batch_norm_sums = BatchNormSums,
                        .batch_norm_backward = BatchNormBackward,
                        .relu = Relu,
                        .relu_backward = ReluBackward,
                        .sum = Sum,
                        .look_up = LookUp,
                        .multiply = Multiply,
                        .multiply_channels = MultiplyChannels,
                        .strip_sums = StripSums,
                        .grouped_norm = GroupedNorm,
                        .grouped_norm_backward = GroupedNormBackward,
                        .lrn = Lrn,
                        .lrn_backward = LrnBackward,
                        .softmax_sums = SoftmaxSums,
                        .softmax_gradient = SoftmaxGradient,
                        .max_unpool = MaxUnpool,
                        .max_unpool_backward = MaxUnpoolBackward,
                        .max_pool = MaxPool,
                        .max_pool_backward = MaxPoolBackward,
                        .avg_pool = AvgPool,
                        .avg_pool_backward = AvgPoolBackward,
                        .accumulate = Accumulate,
                        .unscale = Unscale,
                        .sum_squares = SumSquares,
                        .largest = Largest,
                        .largest_stored = LargestStored,
                        .smallest_stored = SmallestStored,
                        .sanitize = Sanitize,
                        .update = Update,
                        .combine = Combine,
                        .column_squares = ColumnSquares,
                        .divide_by_roots = DivideByRoots};

}  // namespace ada::backend::cpu::ADA_ISA
