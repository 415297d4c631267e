// Tensors on "cuda" in the host's memory: the kernels of the device are those of the CPU, on the same bytes.
//
// Loaded into a PyTorch that was built with CUDA, on a machine without a GPU. Device, dispatch keys, autograd's device thread
// and autocast are then those of CUDA, as PyTorch has them; only what a kernel computes with is not.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr c10::DeviceType CARD = c10::DeviceType::CUDA;

// Called where the host needs what the device has computed.
void (*wait_for_stream)() = nullptr;

struct Guard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return CARD; }
  c10::Device exchangeDevice(c10::Device) const override { return c10::Device(CARD, 0); }
  c10::Device getDevice() const override { return c10::Device(CARD, 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(CARD, 0));
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream(c10::Device(CARD, 0)); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

// What PyTorch's parts for the CPU ask of its parts for CUDA.
struct Hooks final : public at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  int getNumGPUs() const override { return 1; }
  long versionCuDNN() const override { return 0; }
  long versionRuntimeCuDNN() const override { return 0; }
  long versionCuDNNFrontend() const override { return 0; }
  long versionCUDART() const override { return 0; }
  std::string showConfig() const override { return "a stand-in"; }
  void deviceSynchronize(c10::DeviceIndex) const override {
    if (wait_for_stream != nullptr) {
      wait_for_stream();
    }
  }
};

// PyTorch has made its object already, and hands out references to it: from here on it acts as ours. Neither has members.
void take_hooks() {
  static const Hooks* ours = new Hooks();
  const auto& theirs = at::detail::getCUDAHooks();
  *reinterpret_cast<const void**>(const_cast<at::CUDAHooksInterface*>(&theirs)) =
      *reinterpret_cast<const void* const*>(static_cast<const at::CUDAHooksInterface*>(ours));
}

// The storage of another device with the same bytes, which it keeps alive.
c10::Storage same_bytes(const c10::Storage& storage, c10::Device device) {
  auto* kept = new c10::Storage(storage);
  c10::DataPtr pointer(
      storage.mutable_data(), kept, [](void* context) { delete static_cast<c10::Storage*>(context); }, device);
  return c10::Storage(
      c10::Storage::use_byte_size_t(), storage.sym_nbytes(), std::move(pointer), c10::GetAllocator(c10::DeviceType::CPU), true);
}

at::Tensor same_tensor(const at::Tensor& tensor, c10::Device device, c10::DispatchKey key) {
  auto impl = c10::make_intrusive<at::TensorImpl>(
      same_bytes(tensor.storage(), device), c10::DispatchKeySet(key), tensor.dtype());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return at::Tensor(std::move(impl));
}

at::Tensor on_card(const at::Tensor& tensor) {
  return same_tensor(tensor, c10::Device(CARD, 0), c10::DispatchKey::CUDA);
}

// One call of an operator: its tensors of the device, each with the host's tensor that stands for it.
class Call {
 public:
  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != CARD) {
      return tensor;
    }
    for (auto& [card, host] : pairs_) {
      if (card.is_same(tensor)) {
        return host;
      }
    }
    auto host = same_tensor(tensor, c10::Device(c10::DeviceType::CPU), c10::DispatchKey::CPU);
    pairs_.emplace_back(tensor, host);
    return host;
  }

  c10::IValue to_host(const c10::IValue& value) {
    if (value.isTensor()) {
      return to_host(value.toTensor());
    }
    if (value.isDevice() && value.toDevice().type() == CARD) {
      return c10::Device(c10::DeviceType::CPU);
    }
    return map_list(value, [this](const at::Tensor& tensor) { return to_host(tensor); });
  }

  // What the operator returns: its own arguments, or new tensors.
  at::Tensor to_card(const at::Tensor& tensor) const {
    if (!tensor.defined() || tensor.device().type() != c10::DeviceType::CPU) {
      return tensor;
    }
    for (auto& [card, host] : pairs_) {
      if (host.is_same(tensor)) {
        return card;
      }
    }
    return on_card(tensor);
  }

  c10::IValue to_card(const c10::IValue& value) const {
    if (value.isTensor()) {
      return to_card(value.toTensor());
    }
    return map_list(value, [this](const at::Tensor& tensor) { return to_card(tensor); });
  }

  // Gives the device's tensors the shape and bytes that the operator has given those of the host.
  void adopt() const {
    for (auto& [card, host] : pairs_) {
      auto* impl = card.unsafeGetTensorImpl();
      if (host.storage().data() != card.storage().data()) {
        impl->set_storage_keep_dtype(same_bytes(host.storage(), c10::Device(CARD, 0)));
      }
      if (host.sizes() != card.sizes() || host.strides() != card.strides() ||
          host.storage_offset() != card.storage_offset()) {
        impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
      }
    }
  }

 private:
  template <typename Change>
  static c10::IValue map_list(const c10::IValue& value, Change change) {
    if (value.isTensorList()) {
      c10::List<at::Tensor> changed;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        changed.push_back(change(tensor));
      }
      return changed;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> changed;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        changed.push_back(tensor.has_value() ? std::optional<at::Tensor>(change(*tensor)) : std::nullopt);
      }
      return changed;
    }
    return value;
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

// Whether the host waits for what the operator gives.
bool reads(const std::string& name, const torch::jit::Stack& stack, size_t first) {
  static const std::set<std::string> readers = {
      "aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select", "aten::_unique2"};
  if (name == "aten::copy_") {
    return !stack[first].toTensor().is_cuda();
  }
  return readers.count(name) > 0;
}

void on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t first = stack->size() - schema.arguments().size();
  if (wait_for_stream != nullptr && reads(schema.name(), *stack, first)) {
    wait_for_stream();
  }
  Call call;
  for (size_t at = first; at < stack->size(); ++at) {
    (*stack)[at] = call.to_host((*stack)[at]);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (size_t at = stack->size() - schema.returns().size(); at < stack->size(); ++at) {
    (*stack)[at] = call.to_card((*stack)[at]);
  }
  call.adopt();
}

void nothing(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
}

// 0 is the kernel of attention in plain tensor operations (c10: sdp::SDPBackend::math).
void plain_attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->emplace_back(static_cast<int64_t>(0));
}

// These only make another tensor of the same storage, on any device.
const std::set<std::string> VIEWS = {
    "aten::as_strided", "aten::view", "aten::_reshape_alias", "aten::unfold", "aten::view_as_real",
    "aten::view_as_complex", "aten::set_"};

class Silence : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

std::vector<c10::RegistrationHandleRAII>& registrations() {
  static auto* all = new std::vector<c10::RegistrationHandleRAII>();
  return *all;
}

template <c10::KernelFunction::BoxedKernelFunction* Kernel>
void take(const c10::OperatorName& name) {
  registrations().push_back(c10::Dispatcher::singleton().registerImpl(
      name, c10::DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<Kernel>(), std::nullopt, nullptr,
      "gputune: tests/python/card"));
}

} // namespace

// Puts the device in place. `wait` is called where the host needs what the device has computed.
extern "C" void gputune_card_install(void (*wait)()) {
  Silence silence;
  c10::WarningUtils::WarningHandlerGuard quiet(&silence);
  wait_for_stream = wait;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(CARD)].store(new Guard());
  take_hooks();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || VIEWS.count(name.name) > 0) {
      continue;
    }
    if (name.name == "aten::record_stream") {
      take<&nothing>(name);
    } else if (name.name == "aten::_fused_sdp_choice") {
      take<&plain_attention>(name);
    } else if (op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) || name.name == "aten::copy_") {
      take<&on_host>(name);
    }
  }
}
