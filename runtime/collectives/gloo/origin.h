#pragma once

#include <string>

namespace hvd::collectives {

// The file of the shared object that our calls into Gloo end in. PyTorch's libraries export Gloo symbols of another
// version; calls that were bound to them would corrupt memory, so the binding is checked when the module is loaded.
std::string gloo_origin();

}  // namespace hvd::collectives
