"""Row programs as streaming cores in Verilog-2001."""
