#include "tests/fake_cuda/cublaslt_problem.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/fake_cuda/memory.h"

namespace fake_cuda {
namespace {

template <class Value>
cublasStatus_t take(Value& to, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof(Value)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

constexpr std::uint32_t least_epilogue_alignment = 16;
constexpr std::uint32_t most_alignment = 256;

// cuBLASLt takes any number; a promise that is no power of two is a mistake.
cublasStatus_t take_alignment(std::uint32_t& to, const void* from, std::size_t bytes) {
  const cublasStatus_t status = take(to, from, bytes);
  return status == CUBLAS_STATUS_SUCCESS && !std::has_single_bit(to) ? CUBLAS_STATUS_INVALID_VALUE : status;
}

std::uint32_t alignment_of(const void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address) | most_alignment;
  return static_cast<std::uint32_t>(value & -value);
}

std::optional<Element> element(std::int64_t type) {
  if (type == CUDA_R_32F) return Element::f32;
  if (type == CUDA_R_16BF) return Element::bf16;
  if (type == CUDA_R_16F) return Element::f16;
  return std::nullopt;
}

std::optional<Matrix> matrix(const Layout& layout) {
  const auto type = element(layout.type);
  if (!type || layout.order != CUBLASLT_ORDER_COL || layout.batch != 1 || layout.leading < 0)
    return std::nullopt;
  return Matrix{*type, layout.rows, layout.columns, static_cast<std::size_t>(layout.leading)};
}

std::optional<Epilogue> epilogue(std::uint32_t bits) {
  switch (bits) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return Epilogue{};
    case CUBLASLT_EPILOGUE_BIAS:
      return Epilogue{.add_bias = true};
    case CUBLASLT_EPILOGUE_GELU:
      return Epilogue{.gelu = true};
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      return Epilogue{.add_bias = true, .gelu = true};
    case CUBLASLT_EPILOGUE_GELU_AUX:
      return Epilogue{.gelu = true, .keep_aux = true};
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return Epilogue{.add_bias = true, .gelu = true, .keep_aux = true};
    case CUBLASLT_EPILOGUE_DGELU:
      return Epilogue{.gelu_backward = true};
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
      return Epilogue{.gelu_backward = true, .bias_gradient = Epilogue::BiasGradient::of_d};
    case CUBLASLT_EPILOGUE_BGRADA:
      return Epilogue{.bias_gradient = Epilogue::BiasGradient::of_a};
    case CUBLASLT_EPILOGUE_BGRADB:
      return Epilogue{.bias_gradient = Epilogue::BiasGradient::of_b};
    default:
      return std::nullopt;
  }
}

}  // namespace

void init(Operation& operation, cublasComputeType_t compute, cudaDataType_t scale) {
  operation = {};
  operation.compute = compute;
  operation.scale = scale;
}

void init(Layout& layout, cudaDataType type, std::uint64_t rows, std::uint64_t columns,
          std::int64_t leading) {
  layout = {};
  layout.type = static_cast<std::uint32_t>(type);
  layout.rows = rows;
  layout.columns = columns;
  layout.leading = leading;
}

cublasStatus_t set(Operation& to, cublasLtMatmulDescAttributes_t attribute, const void* value,
                   std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return take(to.pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(to.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(to.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(to.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(to.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(to.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(to.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(to.aux_leading, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return take(to.aux_type, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t set(Layout& to, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                   std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return take(to.type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return take(to.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return take(to.rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return take(to.columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return take(to.leading, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(to.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(to.stride, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t set(Preference& to, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                   std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(to.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take_alignment(to.alignments.a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take_alignment(to.alignments.b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take_alignment(to.alignments.c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take_alignment(to.alignments.d, value, bytes);
    default:
      break;
  }
  const bool known =
      attribute >= CUBLASLT_MATMUL_PREF_SEARCH_MODE && attribute <= CUBLASLT_MATMUL_PREF_IMPL_MASK;
  return known && value != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

std::optional<Product> product_of(const Operation& operation, const std::array<const Layout*, 4>& layouts) {
  const auto a = matrix(*layouts[0]), b = matrix(*layouts[1]), c = matrix(*layouts[2]),
             d = matrix(*layouts[3]);
  const auto after = epilogue(operation.epilogue);
  const bool known = a && b && c && d && after && operation.compute == CUBLAS_COMPUTE_32F &&
                     operation.scale == CUDA_R_32F && operation.pointer_mode == CUBLASLT_POINTER_MODE_HOST;
  if (!known || a->type != b->type || c->type != d->type) return std::nullopt;
  Product product{
      *a, *b, *c, *d, operation.transpose_a != CUBLAS_OP_N, operation.transpose_b != CUBLAS_OP_N, *after};
  product.bias_type = operation.bias_type < 0 ? d->type : element(operation.bias_type).value_or(d->type);
  product.aux_type = operation.aux_type < 0 ? d->type : element(operation.aux_type).value_or(d->type);
  product.aux_leading = static_cast<std::size_t>(operation.aux_leading);
  const bool aux_fits = product.aux_leading >= product.m() && product.aux_leading % 8 == 0;
  if (after->reads_or_writes_aux() && !aux_fits) return std::nullopt;
  if (!product.shapes_agree()) return std::nullopt;
  return product;
}

bool is_inside(const void* address, std::size_t bytes) {
  return address != nullptr && Memory::get().range_of(address) && Memory::get().holds(address, bytes);
}

bool are_inside(const Product& product, const Operands& with) {
  const Epilogue& after = product.epilogue;
  const Matrix aux{product.aux_type, product.m(), product.n(), product.aux_leading};
  const std::size_t bias_length =
      after.bias_gradient == Epilogue::BiasGradient::of_b ? product.n() : product.m();
  return is_inside(with.a, product.a.span_bytes()) && is_inside(with.b, product.b.span_bytes()) &&
         (with.beta == 0 || is_inside(with.c, product.c.span_bytes())) &&
         is_inside(with.d, product.d.span_bytes()) &&
         (!after.reads_or_writes_aux() || is_inside(with.aux, aux.span_bytes())) &&
         (!after.reads_or_writes_bias() || is_inside(with.bias, bias_length * bytes_of(product.bias_type)));
}

std::optional<AddressAlignments> needed_alignments(const Operation& operation, const Product& product,
                                                   const Preference& preference) {
  AddressAlignments needs = preference.alignments;
  needs.bias = alignment_of(operation.bias);
  needs.aux = alignment_of(operation.aux);
  const Epilogue& after = product.epilogue;
  const bool unable = (after.reads_or_writes_bias() && needs.bias < least_epilogue_alignment) ||
                      (after.reads_or_writes_aux() && needs.aux < least_epilogue_alignment);
  return unable ? std::nullopt : std::optional(needs);
}

bool are_aligned(const Product& product, const Operands& with, const AddressAlignments& needs) {
  const Epilogue& after = product.epilogue;
  return alignment_of(with.a) >= needs.a && alignment_of(with.b) >= needs.b &&
         (with.beta == 0 || alignment_of(with.c) >= needs.c) && alignment_of(with.d) >= needs.d &&
         (!after.reads_or_writes_bias() || alignment_of(with.bias) >= needs.bias) &&
         (!after.reads_or_writes_aux() || alignment_of(with.aux) >= needs.aux);
}

}  // namespace fake_cuda
