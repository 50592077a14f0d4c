# cmake -DINPUT=file -DOUTPUT=x.cc -DHEADER=... -DFUNCTION=ns::name -P EmbedFile.cmake: a function that gives the bytes of a
# file as a std::span; none without INPUT.
set(bytes "")
if(INPUT)
  file(READ "${INPUT}" hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
endif()
if(bytes)
  file(WRITE "${OUTPUT}" "#include \"${HEADER}\"\n\nalignas(64) static constexpr std::uint8_t kBytes[] = {\n${bytes}};\n"
    "std::span<const std::uint8_t> ${FUNCTION}() { return kBytes; }\n")
else()
  file(WRITE "${OUTPUT}" "#include \"${HEADER}\"\n\nstd::span<const std::uint8_t> ${FUNCTION}() { return {}; }\n")
endif()
