#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/protocol/http_message.h"

namespace hvd::rendezvous {

// The bytes on the wire; RequestReader and ResponseReader read them back.
Bytes write_request(const HttpRequest& request, std::string_view host, std::uint16_t port);
Bytes write_response(const HttpResponse& response);

// "10.0.0.1:4711" or "[fe80::1]:4711".
std::string host_and_port(std::string_view host, std::uint16_t port);

}  // namespace hvd::rendezvous
