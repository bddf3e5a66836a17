"""Whether settings suit each other and the strategies: of files, commands, and a broker.conf."""
