#include "rendezvous/protocol/http_message.h"

namespace hvd::rendezvous {
namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 413: return "Payload Too Large";
    case 414: return "URI Too Long";
    case 417: return "Expectation Failed";
    case 426: return "Upgrade Required";
    case 431: return "Request Header Fields Too Large";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Error";
  }
}

Bytes join_parts(const std::string& head, const Bytes& body) {
  Bytes out(head.begin(), head.end());
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

}  // namespace

std::string host_and_port(std::string_view host, std::uint16_t port) {
  const bool is_v6 = host.find(':') != std::string_view::npos;
  std::string text(is_v6 ? "[" : "");
  text.append(host).append(is_v6 ? "]:" : ":").append(std::to_string(port));
  return text;
}

Bytes write_request(const HttpRequest& request, std::string_view host, std::uint16_t port) {
  std::string head = request.method + " " + request.target + " HTTP/1.1\r\nHost: " + host_and_port(host, port) + "\r\n";
  if (!request.authorization.empty()) head += "Authorization: " + request.authorization + "\r\n";
  if (request.method == "PUT" || request.method == "POST") {
    head += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  }
  return join_parts(head + "\r\n", request.body);
}

Bytes write_response(const HttpResponse& response) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head.append(reason_of(response.status)).append("\r\nContent-Length: ").append(std::to_string(response.body.size()));
  if (!response.signature.empty()) head.append("\r\n").append(kSignatureField).append(": ").append(response.signature);
  if (response.status == 401) head.append("\r\nWWW-Authenticate: HVD1");
  if (response.status == 405) head.append("\r\nAllow: GET, PUT, POST");
  if (response.close) head.append("\r\nConnection: close");
  return join_parts(head + "\r\n\r\n", response.body);
}

}  // namespace hvd::rendezvous
