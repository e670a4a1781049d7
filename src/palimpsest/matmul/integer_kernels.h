// The kernels of integer codes, one file for each way to multiply them. nullptr: not for this type, or not on this CPU.
// All give the same bits. Internal.
#pragma once

#include "palimpsest/matmul/panel_kernel.h"

namespace palimpsest {

MultiplyPanels pair_product(ggml_type type);  // AVX2, AVX-512, NEON
MultiplyPanels quad_product(ggml_type type);  // AVX-512 VNNI
// The next three do not ask whether the CPU has what they use (core/cpu_level.h).
MultiplyPanels avx_vnni_product(ggml_type type);
MultiplyPanels tile_product(ggml_type type);         // AMX
MultiplyPanels neon_dot_product(ggml_type type);     // Arm's sdot
MultiplyPanels neon_matrix_product(ggml_type type);  // Arm's smmla

}  // namespace palimpsest
