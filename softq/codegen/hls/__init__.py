"""Row programs as C++ for high-level synthesis, in types of any width (`ap_int.h`)."""
