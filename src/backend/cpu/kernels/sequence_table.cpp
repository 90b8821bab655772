// The table of this instruction set: each kernel of sequences beside the name it is called by.
#include "backend/cpu/sequence_kernels.h"

#define ADA_TEXT2(x) #x
#define ADA_TEXT(x) ADA_TEXT2(x)

namespace ada::backend::cpu::ADA_ISA {

void Matrix(const MatrixArgs&);
void TransposeMatrix(const float* from, std::int64_t rows, std::int64_t columns,
                     std::int64_t from_step, float* to, std::int64_t to_step);
void Probabilities(const AttentionRows&, float factor, float* s);
void ScoreGradient(const AttentionRows&, const float* p, float* dp);

extern const SequenceKernels kSequenceTable;
const SequenceKernels kSequenceTable = {.name = ADA_TEXT(ADA_ISA),
                                        .matrix = Matrix,
                                        .transpose = TransposeMatrix,
                                        .probabilities = Probabilities,
                                        .score_gradient = ScoreGradient};

}  // namespace ada::backend::cpu::ADA_ISA
