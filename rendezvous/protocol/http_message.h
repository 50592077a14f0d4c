#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/bytes.h"

namespace hvd::rendezvous {

// The part of an HTTP/1.1 request that this protocol uses. Plain data.
struct HttpRequest {
  std::string method;
  std::string target;
  std::string authorization;  // the field's value, empty without one
  Bytes body;
};

// The part of a response that this protocol uses. `signature` is empty where the server could not
// sign: it did not know the client, or the request could not be read.
struct HttpResponse {
  int status = 0;
  std::string signature;  // the field HVD-Signature
  bool close = false;     // the server closes the connection after it
  Bytes body;
};

inline constexpr std::string_view kSignatureField = "HVD-Signature";

// The bytes on the wire; RequestReader and ResponseReader read them back.
Bytes write_request(const HttpRequest& request, std::string_view host, std::uint16_t port);
Bytes write_response(const HttpResponse& response);

// "10.0.0.1:4711" or "[fe80::1]:4711".
std::string host_and_port(std::string_view host, std::uint16_t port);

}  // namespace hvd::rendezvous
