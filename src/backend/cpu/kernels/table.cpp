// The table of this instruction set.
#include "backend/cpu/kernels/functions.h"

#define ADA_TEXT2(x) #x
#define ADA_TEXT(x) ADA_TEXT2(x)

namespace ada::backend::cpu::ADA_ISA {

extern const Kernels kTable;
const Kernels kTable = {ADA_TEXT(ADA_ISA),
                        Widen,
                        Round,
                        Inspect,
                        ExponentTail,
                        ChannelMagnitudes,
                        ChannelMoments,
                        BatchNormForward,
                        BatchNormSums,
                        BatchNormBackward,
                        Relu,
                        ReluBackward,
                        Sum,
                        Dropout,
                        MaxPool,
                        MaxPoolBackward,
                        AvgPool,
                        AvgPoolBackward,
                        Accumulate,
                        Unscale,
                        SumSquares,
                        Largest,
                        LargestStored,
                        Sanitize,
                        Update};

}  // namespace ada::backend::cpu::ADA_ISA
