// Writes to the second half of a table while its first half is read, each as fast as it goes, in any order.
`timescale 1ns / 1ps
module register_port_tb;
    parameter BASE = 1024;
    parameter HALF = 128;
    parameter COUNT = 2000;

    reg clock = 1'b0;
    reg running = 1'b0;
    always #5 clock = ~clock;

    reg [31:0] held [0:2*HALF-1];
    integer at, wrong = 0, writes = 0, reads = 0;
    integer share = 50, seed = 1;
    reg aw = 1'b0, w = 1'b0, ar = 1'b0, bready = 1'b0, rready = 1'b0;
    reg aw_sent = 1'b0, w_sent = 1'b0, ar_sent = 1'b0;
    reg [7:0] write_entry = HALF, read_entry = 0;
    reg [3:0] word = 0;
    wire awready, wready, bvalid, arready, rvalid;
    wire [1:0] bresp, rresp;
    wire [31:0] rdata;
    wire [31:0] write_address = BASE + 4 * write_entry;
    wire [31:0] read_address = reads < COUNT ? BASE + 4 * read_entry : BASE + 4 * (reads - COUNT + HALF);
    wire [31:0] wanted = reads < COUNT ? held[read_entry] : held[reads - COUNT + HALF];
    // What was written is read when all is written.
    wire may_read = reads < COUNT || writes == COUNT;

    toy core (
        .aclk(clock), .aresetn(running),
        .s_axis_tdata(8'd0), .s_axis_tvalid(1'b0), .s_axis_tready(), .s_axis_tlast(1'b0),
        .m_axis_tdata(), .m_axis_tvalid(), .m_axis_tready(1'b1), .m_axis_tlast(),
        .n_axis_tdata(), .n_axis_tvalid(), .n_axis_tready(1'b1),
        .s_axil_awaddr(aw ? write_address[10:0] : 11'bx), .s_axil_awvalid(aw), .s_axil_awready(awready),
        .s_axil_wdata(w ? {28'd0, word} : 32'bx), .s_axil_wstrb(w ? 4'b1111 : 4'bx), .s_axil_wvalid(w),
        .s_axil_wready(wready), .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
        .s_axil_araddr(ar ? read_address[10:0] : 11'bx), .s_axil_arvalid(ar), .s_axil_arready(arready),
        .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready)
    );

    function chance(input integer dummy);
        chance = $unsigned($random(seed)) % 100 < share;
    endfunction

    initial begin
        if ($value$plusargs("share=%d", share)) begin end
        if ($value$plusargs("seed=%d", seed)) begin end
        for (at = 0; at < 2 * HALF; at = at + 1) held[at] = at % 16;
        #42 running = 1'b1;
        #2000000 $display("FAIL: %0d writes, %0d reads", writes, reads);
        $finish;
    end

    always @(posedge clock) if (running) begin
        bready <= chance(0);
        rready <= chance(0);
        aw <= aw ? ~awready : (writes < COUNT && !aw_sent && chance(0));
        w <= w ? ~wready : (writes < COUNT && !w_sent && chance(0));
        ar <= ar ? ~arready : (may_read && reads < COUNT + HALF && !ar_sent && chance(0));
        if (aw) aw_sent <= aw_sent | awready;
        if (w) w_sent <= w_sent | wready;
        if (ar) ar_sent <= ar_sent | arready;
        if (bvalid & bready) begin
            if (!aw_sent || !w_sent || bresp !== 2'd0) wrong = wrong + 1;
            held[write_entry] <= word;
            write_entry <= HALF + $unsigned($random(seed)) % HALF;
            word <= $random(seed);
            writes <= writes + 1;
            {aw_sent, w_sent} <= 2'd0;
        end
        if (rvalid & rready) begin
            if (!ar_sent || rresp !== 2'd0 || rdata !== wanted) wrong = wrong + 1;
            read_entry <= $unsigned($random(seed)) % HALF;
            reads <= reads + 1;
            ar_sent <= 1'b0;
        end
        if (reads == COUNT + HALF) begin
            $display("%s: %0d wrong", wrong ? "FAIL" : "PASS", wrong);
            $finish;
        end
    end
endmodule
