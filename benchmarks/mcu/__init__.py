"""Instructions and bytes of kernels and models in C, on microcontrollers that qemu emulates."""
