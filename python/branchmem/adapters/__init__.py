"""What people already run, given memory that keeps to its branch.  Each module needs an extra of its own.

Nothing here is imported by branchmem itself: import the one you need.

langgraph      a store and checkpointers of LangGraph, whose memories belong to checkpoints
mem0           a Mem0 memory at an anchor
openai_agents  a session of the OpenAI Agents SDK with branches
"""
